"""Networks as other libraries' files hold them: Keras' in the files of tfjs, MobileNet in tflite.

Convolutions of TensorFlow pad what "same" asks for: where that is odd, more on the right and below.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from photograph_packages import Package
from torch import Tensor, nn

__all__ = ["KerasNetwork", "MobileNetV1", "read_tfjs", "read_tflite"]

Weights = Mapping[str, NDArray[np.float32]]


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow's "same" does."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(_same(images, self.kernel_size, self.stride))


def _same(images: Tensor, kernel: Sequence[int], stride: Sequence[int], fill: float = 0) -> Tensor:
    missing = [
        max((math.ceil(side / step) - 1) * step + size - side, 0)
        for side, size, step in zip(images.shape[-2:], kernel, stride, strict=True)
    ]
    (top, left) = (each // 2 for each in missing)
    return F.pad(images, [left, missing[1] - left, top, missing[0] - top], value=fill)


def read_tfjs(package: Package, folder: str) -> tuple[list[dict[str, Any]], Weights]:
    """Read the layers and weights of a Keras model from a folder of a package."""
    files = package.read_all(rf"{folder}/.*\.(json|bin)")
    model = json.loads(files[f"{folder}/model.json"])
    weights: dict[str, NDArray[np.float32]] = {}
    for group in model["weightsManifest"]:
        content = b"".join(files[f"{folder}/{path}"] for path in group["paths"])
        start = 0
        for each in group["weights"]:
            count = math.prod(each["shape"])
            part = np.frombuffer(content, "<f4", count, start)
            weights[each["name"]] = part.reshape(each["shape"])
            start += 4 * count
    return model["modelTopology"]["model_config"]["config"]["layers"], weights


class KerasNetwork(nn.Module):
    """A functional model of Keras, layer by layer as its file describes it; it ends in logits."""

    def __init__(self, layers: Sequence[Mapping[str, Any]], weights: Weights) -> None:
        super().__init__()
        self.order = [layer["name"] for layer in layers]
        self.inbound = {
            layer["name"]: [each[0] for node in layer["inbound_nodes"] for each in node]
            for layer in layers
        }
        self.layers = nn.ModuleDict(
            {
                layer["name"]: _keras_layer(layer["class_name"], layer["config"], weights)
                for layer in layers
            }
        )

    def forward(self, images: Tensor) -> Tensor:
        done: dict[str, Tensor] = {}
        for name in self.order:
            given = [done[each] for each in self.inbound[name]] or [images]
            done[name] = self.layers[name](sum(given[1:], given[0]))  # several are to be added
        return done[self.order[-1]]


def _keras_layer(kind: str, config: Mapping[str, Any], weights: Weights) -> nn.Module:
    """Make one layer; what the last one does to logits is left out."""
    name = config["name"]
    if kind in ("InputLayer", "Add"):
        return nn.Identity()
    if kind == "ZeroPadding2D":
        (top, bottom), (left, right) = config["padding"]
        return nn.ZeroPad2d((left, right, top, bottom))
    if kind == "Conv2D":
        return _convolution(
            weights[f"{name}/kernel"].transpose(3, 2, 0, 1),
            weights[f"{name}/bias"],
            stride=config["strides"][0],
            same=config["padding"] == "same",
        )
    if kind == "BatchNormalization":
        return _norm([weights[f"{name}/{part}"] for part in _NORM], config["epsilon"])
    if kind == "Activation" and config["activation"] == "relu":
        return nn.ReLU()
    if kind == "MaxPooling2D" and config["padding"] == "valid":
        return nn.MaxPool2d(config["pool_size"], config["strides"])
    if kind == "GlobalAveragePooling2D":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if kind == "Dense" and config["activation"] == "softmax":
        return _linear(weights[f"{name}/kernel"].T, weights[f"{name}/bias"])
    raise ValueError(f"{kind} {name} is not known; add it here")


_NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def _convolution(
    kernel: NDArray[np.float32],
    bias: NDArray[np.float32],
    *,
    stride: int = 1,
    same: bool = True,
    groups: int = 1,
) -> nn.Conv2d:
    out, within, *size = kernel.shape
    made = SameConv2d if same else nn.Conv2d
    layer = made(within * groups, out, (size[0], size[1]), stride, groups=groups)
    return _filled(layer, weight=kernel, bias=bias)


def _norm(parts: Sequence[NDArray[np.float32]], epsilon: float) -> nn.BatchNorm2d:
    scale, shift, mean, variance = parts
    layer = nn.BatchNorm2d(len(scale), eps=epsilon)
    return _filled(layer, weight=scale, bias=shift, running_mean=mean, running_var=variance)


def _linear(kernel: NDArray[np.float32], bias: NDArray[np.float32]) -> nn.Linear:
    return _filled(nn.Linear(kernel.shape[1], kernel.shape[0]), weight=kernel, bias=bias)


_Layer = TypeVar("_Layer", bound=nn.Module)


def _filled(layer: _Layer, **values: NDArray[np.float32]) -> _Layer:
    state = {name: torch.from_numpy(value.copy()) for name, value in values.items()}
    layer.load_state_dict(layer.state_dict() | state)
    return layer


class MobileNetV1(nn.Sequential):
    """MobileNet (Howard and others 2017) of width 1; the class "background" is left out."""

    def __init__(self, weights: Weights) -> None:
        def layer(name: str, *, stride: int = 1, deep: bool = False) -> list[nn.Module]:
            kind = "depthwise_" if deep else ""
            kernel = weights[f"MobilenetV1/{name}/{kind}weights"]
            bias = weights[f"MobilenetV1/MobilenetV1/{name}/{kind or 'convolution_'}bias"]
            order = (3, 0, 1, 2) if deep else (0, 3, 1, 2)
            groups = len(bias) if deep else 1
            made = _convolution(kernel.transpose(order), bias, stride=stride, groups=groups)
            return [made, nn.ReLU6()]

        body = layer("Conv2d_0", stride=2)
        for number in range(1, 14):
            stride = 2 if number in (2, 4, 6, 12) else 1
            body += layer(f"Conv2d_{number}_depthwise", stride=stride, deep=True)
            body += layer(f"Conv2d_{number}_pointwise")
        head = "MobilenetV1/Logits/Conv2d_1c_1x1"
        kernel, bias = weights[f"{head}/weights"][1:, 0, 0], weights[f"{head}/convolution_bias"][1:]
        super().__init__(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _linear(kernel, bias))


def read_tflite(content: bytes) -> Weights:
    """Read the constants of a tflite file by their names: float32, of its first graph."""
    model = _Table.root(content)
    graph, buffers = model.tables(2)[0], model.tables(4)
    found = {}
    for tensor in graph.tables(0):
        data = buffers[tensor.number(2)].bytes(0)
        if data and tensor.number(1) == 0:  # float32
            shape = np.frombuffer(tensor.bytes(0, width=4), "<i4")
            found[tensor.bytes(3).decode()] = np.frombuffer(data, "<f4").reshape(shape)
    return found


class _Table:
    """A table of a flatbuffer: its fields by their numbers in the schema."""

    def __init__(self, content: bytes, place: int) -> None:
        self.content, self.place = content, place

    @staticmethod
    def root(content: bytes) -> _Table:
        return _Table(content, _unsigned(content, 0))

    def tables(self, field: int) -> list[_Table]:
        start = self._vector(field)
        places = range(start + 4, start + 4 + 4 * _unsigned(self.content, start), 4)
        return [_Table(self.content, at + _unsigned(self.content, at)) for at in places]

    def bytes(self, field: int, *, width: int = 1) -> bytes:
        start = self._vector(field)
        if not start:
            return b""
        return self.content[start + 4 : start + 4 + width * _unsigned(self.content, start)]

    def number(self, field: int) -> int:
        place = self._field(field)
        return _unsigned(self.content, place) if place else 0

    def _vector(self, field: int) -> int:
        place = self._field(field)
        return place + _unsigned(self.content, place) if place else 0

    def _field(self, field: int) -> int:
        """Where a field lies; 0 where it has its default."""
        known = self.place - struct.unpack_from("<i", self.content, self.place)[0]
        (size,) = struct.unpack_from("<H", self.content, known)
        if 4 + 2 * field >= size:
            return 0
        (offset,) = struct.unpack_from("<H", self.content, known + 4 + 2 * field)
        return self.place + offset if offset else 0


def _unsigned(content: bytes, place: int) -> int:
    number: int = struct.unpack_from("<I", content, place)[0]
    return number
