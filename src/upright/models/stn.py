"""Spatial transformer networks (Jaderberg et al. 2015): the motion is predicted directly.

``stn18`` is as it was configured beside ETN by Tai, Bailis and Valiant (2019): three transformers,
for translation, for rotation and scale, and for the scale in x, each in its own coordinates.
``stn-affine18`` is the ordinary one: one transformer, six numbers. Both start from the identity.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from upright.models.coordinates import Affine, Coordinates, RotationScale, ScaleX, Translation
from upright.models.etn_resnet import etn_resnet
from upright.models.layers import batch_norm
from upright.models.registry import network
from upright.models.transformer import Straightening, Transformer, full_precision

__all__ = ["DirectPredictor", "stn", "stn_affine"]

_SLOPE = 0.1


class DirectPredictor(nn.Module):
    """Two convolutions, maxima over 3 x 3 parts of the image, one linear layer that starts at 0."""

    def __init__(
        self, outputs: int, *, features: int = 32, channels: int = 3, bounded: bool = True
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, features, 3, padding=1, bias=False),
            batch_norm(features),
            nn.LeakyReLU(_SLOPE),
            nn.Conv2d(features, features, 3, padding=1, bias=False),
            batch_norm(features),
            nn.LeakyReLU(_SLOPE),
            nn.AdaptiveMaxPool2d(3),
            nn.Flatten(),
        )
        self.linear = nn.Linear(9 * features, outputs)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.bounded = bounded

    def forward(self, look: Tensor) -> Tensor:
        features = full_precision(self.layers(look))
        with torch.autocast(look.device.type, enabled=False):
            numbers: Tensor = self.linear(features)
        # Adam moves every weight by its rate: without the root, all of them together soon turn
        # images upside down, where the tanh is flat and nothing is learned.
        numbers = numbers / math.sqrt(features.shape[1])
        return numbers.tanh() if self.bounded else numbers


@network(
    "stn10, stn18 or stn34 (or stn10x0.25 for a quarter of the channels)",
    r"stn(10|18|34)(?:x(\d*\.?\d+))?",
    about="three spatial transformers",
)
def stn(
    depth: str | int, width: str | float | None = None, *, classes: int = 10, channels: int = 3
) -> Straightening:
    """Build the network with a classifier of 10, 18 or 34 layers."""
    coordinates = (Translation(), RotationScale(), ScaleX())
    return _build(coordinates, int(depth), float(width or 1), classes, channels, bounded=True)


@network(
    "stn-affine10, stn-affine18 or stn-affine34",
    r"stn-affine(10|18|34)(?:x(\d*\.?\d+))?",
    about="one spatial transformer, for affine maps",
)
def stn_affine(
    depth: str | int, width: str | float | None = None, *, classes: int = 10, channels: int = 3
) -> Straightening:
    """Build the network with one transformer that predicts any affine map."""
    return _build((Affine(),), int(depth), float(width or 1), classes, channels, bounded=False)


def _build(
    coordinates: tuple[Coordinates, ...],
    depth: int,
    width: float,
    classes: int,
    channels: int,
    *,
    bounded: bool,
) -> Straightening:
    features = max(1, round(32 * width))
    transformers = [
        Transformer(
            each,
            DirectPredictor(len(each.axes), features=features, channels=channels, bounded=bounded),
        )
        for each in coordinates
    ]
    return Straightening(
        transformers, etn_resnet(depth, width=width, classes=classes, channels=channels)
    )
