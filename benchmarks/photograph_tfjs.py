"""Keras' networks as TensorFlow.js keeps them: a JSON file of layers, and shards of weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from photograph_layers import Array, convolution, linear, norm
from photograph_packages import Package
from torch import Tensor, nn

__all__ = ["KerasNetwork", "read_tfjs"]

_NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def read_tfjs(package: Package, folder: str) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Read the layers and weights of a network from a folder of a package."""
    files = package.read_all(rf"{folder}/.*\.(json|bin)")
    model = json.loads(files[f"{folder}/model.json"])
    weights: dict[str, Array] = {}
    for group in model["weightsManifest"]:
        content = b"".join(files[f"{folder}/{path}"] for path in group["paths"])
        start = 0
        for each in group["weights"]:
            count = math.prod(each["shape"])
            part = np.frombuffer(content, "<f4", count, start)
            weights[each["name"]] = part.reshape(each["shape"])
            start += part.nbytes
    return model["modelTopology"]["model_config"]["config"]["layers"], weights


class KerasNetwork(nn.Module):
    """A functional network of Keras, layer by layer as its file has it; it ends in logits."""

    def __init__(self, layers: Sequence[Mapping[str, Any]], weights: Mapping[str, Array]) -> None:
        super().__init__()
        self.inputs = {
            layer["name"]: [each[0] for node in layer["inbound_nodes"] for each in node]
            for layer in layers
        }
        self.layers = nn.ModuleDict(
            {
                layer["name"]: _layer(layer["class_name"], layer["config"], weights)
                for layer in layers
            }
        )

    def forward(self, images: Tensor) -> Tensor:
        done, last = {"": images}, ""
        for last, names in self.inputs.items():
            first, *others = [done[name] for name in names or [""]]
            done[last] = self.layers[last](sum(others, first))  # only what is added has others
        return done[last]


def _layer(kind: str, config: Mapping[str, Any], weights: Mapping[str, Array]) -> nn.Module:
    """Make one layer; the softmax of the last one is left out."""
    name = config["name"]
    match kind:
        case "InputLayer" | "Add":
            return nn.Identity()
        case "ZeroPadding2D":
            (top, bottom), (left, right) = config["padding"]
            return nn.ZeroPad2d((left, right, top, bottom))
        case "Conv2D":
            return convolution(
                weights[f"{name}/kernel"].transpose(3, 2, 0, 1),
                weights[f"{name}/bias"],
                stride=config["strides"][0],
                same=config["padding"] == "same",
            )
        case "BatchNormalization":
            return norm(*(weights[f"{name}/{part}"] for part in _NORM), eps=config["epsilon"])
        case "Activation" if config["activation"] == "relu":
            return nn.ReLU()
        case "MaxPooling2D" if config["padding"] == "valid":
            return nn.MaxPool2d(config["pool_size"], config["strides"])
        case "GlobalAveragePooling2D":
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        case "Dense" if config["activation"] == "softmax":
            return linear(weights[f"{name}/kernel"].T, weights[f"{name}/bias"])
    raise ValueError(f"a layer {name} of kind {kind} is not known here; add it")
