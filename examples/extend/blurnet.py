"""A network: a small one that blurs before it drops pixels, so that small shifts stay small."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upright.models import network
from upright.models.layers import Standardise

__all__ = ["Blur", "blurnet"]


class Blur(nn.Module):
    """Halves the sides of an image by a weighted mean of 3 x 3 pixels."""

    kernel: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        side = torch.tensor([0.25, 0.5, 0.25])
        self.register_buffer("kernel", torch.outer(side, side).repeat(channels, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.kernel, stride=2, padding=1, groups=len(self.kernel))


@network("blurnet (or blurnet-C for C channels)", r"blurnet(?:-(\d+))?")
def blurnet(width: str | None = None, *, classes: int = 10, channels: int = 3) -> nn.Sequential:
    """Build the network; what the pattern captured comes first, as text."""
    hidden = int(width or 16)
    return nn.Sequential(
        Standardise(),  # normalisation is part of the network: images come in [0, 1]
        Blur(channels),
        *_stage(channels, hidden),
        *_stage(hidden, 2 * hidden),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * 2 * hidden, classes),
    )


def _stage(before: int, after: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(after), nn.ReLU(), Blur(after)
