"""A small plain network for demos and tests: it learns small images in a minute on a CPU.

It halves the image first, which keeps small shifts small, and pools by maxima, not by strides.
"""

from __future__ import annotations

import re

from torch import nn

from upright.models.layers import Standardise
from upright.models.registry import network

__all__ = ["convnet"]


@network(
    "convnet (or convnet2 for twice the channels)",
    r"convnet([0-9.]*)",
    about="small, for demos and tests",
)
def convnet(width: str | float = 1, *, classes: int = 10, channels: int = 3) -> nn.Sequential:
    """Build the network; ``width`` multiplies its channels."""
    if width and not re.fullmatch(r"\d*\.?\d+|\d+\.", str(width)):
        raise ValueError(f"a convnet's width is a number, as in convnet0.5, not {width!r}")
    if not 1 / 16 <= float(width or 1) <= 64:
        raise ValueError(f"a convnet can be 1/16 to 64 times as wide as its first, not {width}")
    first, second, third = (round(base * float(width or 1)) for base in (24, 48, 64))
    return nn.Sequential(
        Standardise(),
        nn.AvgPool2d(2),
        *_convolution(channels, first),
        nn.MaxPool2d(2),
        *_convolution(first, second),
        *_convolution(second, third),
        nn.AdaptiveMaxPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * third, classes),
    )


def _convolution(before: int, after: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(after), nn.ReLU()
