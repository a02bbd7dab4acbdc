"""The paper's network: a pre-activation ResNet for small images (He et al. 2016).

6n+2 layers: one convolution, three stages of n blocks with 16, 32 and 64 channels, one linear
layer. ``resnet32`` is the paper's, ``resnet14`` and so on its family, ``resnet32x2`` has twice the
channels. Details follow the authors' program: leaky ReLU 0.1, shortcuts without weights, and a
first block whose activation comes before the shortcut. ``resnet32-epsilon0.001`` adds to the
variances in its batch norms what TensorFlow does by default, and not PyTorch's 0.00001.
``resnet32-blur`` halves sizes after a blur, and not by a stride (Zhang 2019): what a stride leaves
out depends on where the image lies.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from upright.callers import warn_caller
from upright.checks import SuspiciousInput
from upright.models.layers import Standardise, batch_norm, blurred_half
from upright.models.registry import network

__all__ = ["SLOPE", "Block", "ResNet", "resnet"]

SLOPE = 0.1

_DEPTHS = range(8, 1203, 6)
_OF_IMAGENET = (50, 152)
"""Depths of both families, whose networks are not the same; its others are not 6n+2."""


class ResNet(nn.Module):
    """Maps images in [0, 1] to logits."""

    def __init__(
        self,
        *,
        depth: int,
        width: float,
        classes: int,
        channels: int,
        epsilon: float = 1e-5,
        blur: bool = False,
    ) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        widths = [max(1, round(base * width)) for base in (16, 16, 32, 64)]
        self.blurs = blur
        self.standardise = Standardise()
        self.stem = _conv(channels, widths[0], stride=1)
        stages = zip(widths[:-1], widths[1:], (1, 2, 2), strict=True)
        self.blocks = nn.Sequential(
            *(
                Block(before if first else after, after, stride if first else 1, epsilon, blur)
                for before, after, stride in stages
                for first in (True, *[False] * (blocks - 1))
            )
        )
        first_block = self.blocks[0]
        assert isinstance(first_block, Block)
        first_block.activate_shortcut = True
        self.norm = batch_norm(widths[-1], epsilon)
        self.linear = nn.Linear(widths[-1], classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(self.standardise(images)))
        logits: Tensor = self.linear(_activate(self.norm(features)).mean((2, 3)))
        return logits


class Block(nn.Module):
    """Two convolutions with norm and activation before each, beside a shortcut without weights."""

    def __init__(
        self, before: int, after: int, stride: int, epsilon: float = 1e-5, blur: bool = False
    ) -> None:
        super().__init__()
        self.blurs = blur and stride > 1
        self.norm1 = batch_norm(before, epsilon)
        self.conv1 = _conv(before, after, 1 if self.blurs else stride)
        self.norm2, self.conv2 = batch_norm(after, epsilon), _conv(after, after, 1)
        self.stride, self.missing = stride, after - before
        self.activate_shortcut = False

    def forward(self, x: Tensor) -> Tensor:
        active = _activate(self.norm1(x))
        inner = _activate(self.norm2(self.conv1(active)))
        branch: Tensor = self.conv2(blurred_half(inner) if self.blurs else inner)
        return branch + self.shortcut(active if self.activate_shortcut else x)

    def shortcut(self, x: Tensor) -> Tensor:
        if self.blurs:
            x = blurred_half(x)
        elif self.stride > 1:
            x = F.avg_pool2d(x, self.stride, ceil_mode=True)  # for odd sizes, as the convolution
        if self.missing:
            x = F.pad(x, [0, 0, 0, 0, self.missing // 2, self.missing - self.missing // 2])
        return x


def _conv(before: int, after: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)


def _activate(x: Tensor) -> Tensor:
    return F.leaky_relu(x, SLOPE)


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (9 * module.out_channels)))
        if isinstance(module, nn.Linear):
            limit = math.sqrt(3 / module.in_features)
            nn.init.uniform_(module.weight, -limit, limit)
            nn.init.zeros_(module.bias)


@network(
    "resnetD with D = 6n+2 (as in resnet32, resnet14x0.5 for half the channels, resnet32-blur to "
    "halve sizes after a blur)",
    r"resnet(\d+)(?:x(\d*\.?\d+))?(?:-epsilon(\d*\.?\d+))?(-blur)?",
    about="the paper's network; resnet50 is not ImageNet's",
)
def resnet(
    depth: str | int,
    width: str | float | None = None,
    epsilon: str | float | None = None,
    blur: str | None = None,
    *,
    classes: int = 10,
    channels: int = 3,
) -> ResNet:
    """Build the ResNet of some depth, 6n+2, and width factor; epsilon is that of its norms."""
    layers = int(depth)
    if layers not in _DEPTHS:
        nearest = min(_DEPTHS, key=lambda other: abs(other - layers))
        raise ValueError(
            f"a resnet for small images has 6n+2 layers (8, 14, 20, ..., 1202), not {depth}; write "
            f"resnet{nearest}, or name another network as timm:NAME, torchvision:NAME or "
            "FILE.py:FACTORY"
        )
    if not 1 / 16 <= float(width or 1) <= 64:
        raise ValueError(f"a resnet can be 1/16 to 64 times as wide as the paper's, not {width}")
    if not 0 < float(epsilon or 1e-5) <= 1:
        raise ValueError(f"a norm adds up to 1 to a variance, and more than 0, not {epsilon}")
    network = ResNet(
        depth=layers,
        width=float(width or 1),
        classes=classes,
        channels=channels,
        epsilon=float(epsilon or 1e-5),
        blur=bool(blur),
    )
    if layers in _OF_IMAGENET:
        weights = sum(weight.numel() for weight in network.parameters())
        warn_caller(
            f"resnet{depth} is the network of 6n+2 layers for small images, with {weights:,} "
            f"weights, and not ImageNet's ResNet-{depth}, which comes as timm:resnet{depth} or "
            f"torchvision:resnet{depth}, or from code of your own as FILE.py:FACTORY",
            SuspiciousInput,
        )
    return network
