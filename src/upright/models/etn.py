"""Equivariant transformer networks (Tai, Bailis and Valiant 2019): the motion is read off a map.

In coordinates in which a motion is a shift, convolutions shift with it; so does the centroid of a
heat map that they paint, which is the estimate: where the content turns by an angle, the estimate
turns with it, whatever the weights are.

``etn18`` has three transformers, for translation, for rotation and scale, and for the scale in x,
in front of a classifier of 18 layers. Heat maps start flat, and flat maps mean the identity.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.coordinates import (
    Coordinates,
    ImageForm,
    RotationScale,
    ScaleX,
    Translation,
    middles,
)
from upright.models.etn_resnet import etn_resnet
from upright.models.layers import batch_norm, largest
from upright.models.registry import network
from upright.models.transformer import Straightening, Transformer, full_precision

__all__ = ["CentroidPredictor", "centroid", "circular_centroid", "etn"]

_SLOPE = 0.1

FLAT = 0.01
"""Below this length, the mean of unit vectors says more of rounding than of a direction."""


class CentroidPredictor(nn.Module):
    """Two convolutions; then for each number a heat map along one axis, and its centroid."""

    def __init__(self, coordinates: Coordinates, *, features: int = 32, channels: int = 3) -> None:
        super().__init__()
        self.axes, self.cyclic = coordinates.axes, coordinates.cyclic
        # Columns are padded by hand, rows by the convolution.
        self.conv1 = nn.Conv2d(channels, features, 3, padding=(1, 0), bias=False)
        self.conv2 = nn.Conv2d(features, features, 3, padding=(1, 0), bias=False)
        self.norm1, self.norm2 = batch_norm(features), batch_norm(features)
        self.heads = nn.ModuleList(nn.Conv1d(features, 1, 3, bias=False) for _ in coordinates.axes)
        self.offsets = nn.Parameter(torch.zeros(len(coordinates.axes)))
        for weight in self.heads.parameters():
            nn.init.zeros_(weight)

    def forward(self, look: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm1(self.conv1(_pad(look, self.cyclic))), _SLOPE)
        x = F.leaky_relu(self.norm2(self.conv2(_pad(x, self.cyclic))), _SLOPE)
        numbers = []
        for axis, head in zip(self.axes, self.heads, strict=True):
            cyclic = self.cyclic and axis == -1
            profile = largest(x, -2 if axis == -1 else -1)
            heat = full_precision(head(_pad(profile, cyclic)))[:, 0].softmax(-1)
            numbers.append(circular_centroid(heat) if cyclic else centroid(heat))
        return torch.stack(numbers, -1) + self.offsets.tanh()


def centroid(heat: Tensor) -> Tensor:
    """Give the mean place of a distribution over equal parts of [-1, 1], from its last axis.

    Mirrored places are taken together, so that a symmetric distribution gives 0 bit for bit.
    """
    return ((heat - heat.flip(-1)) / 2 * _places(heat)).sum(-1)


def circular_centroid(heat: Tensor) -> Tensor:
    """Give the mean direction of a distribution over equal parts of a circle, as a part of 180
    degrees.

    A flat distribution has no direction: then it is 0, with a slope that stays finite.
    """
    angle = math.pi * _places(heat)
    sin = ((heat - heat.flip(-1)) / 2 * angle.sin()).sum(-1)
    cos = (heat * angle.cos()).sum(-1)
    length = (sin.square() + cos.square() + 1e-12).sqrt()  # the root of 0 has no slope
    return torch.atan2(sin, cos + F.relu(FLAT - length)) / math.pi


def _places(heat: Tensor) -> Tensor:
    return middles(heat.shape[-1], ImageForm.of(heat))


def _pad(x: Tensor, cyclic: bool) -> Tensor:
    """Add a column on each side."""
    return torch.cat((x[..., -1:], x, x[..., :1]), -1) if cyclic else F.pad(x, [1, 1])


@network(
    "etn10, etn18 or etn34 (or etn10x0.25 for a quarter of the channels)",
    r"etn(10|18|34)(?:x(\d*\.?\d+))?",
    about="equivariant transformers",
)
def etn(
    depth: str | int, width: str | float | None = None, *, classes: int = 10, channels: int = 3
) -> Straightening:
    """Build the network with a classifier of 10, 18 or 34 layers."""
    factor = float(width or 1)
    features = max(1, round(32 * factor))
    transformers = [
        Transformer(each, CentroidPredictor(each, features=features, channels=channels))
        for each in (Translation(), RotationScale(), ScaleX())
    ]
    return Straightening(
        transformers, etn_resnet(int(depth), width=factor, classes=classes, channels=channels)
    )
