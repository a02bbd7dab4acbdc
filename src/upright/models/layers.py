"""Layers that several networks share."""

from __future__ import annotations

import math

from torch import Tensor, nn

__all__ = ["Standardise"]


class Standardise(nn.Module):
    """Gives each image mean 0 and standard deviation 1, over all its pixels and channels.

    The deviation is bounded from below by that of a flat image with one grey level of noise in one
    value, so that a flat image does not blow up.
    """

    def forward(self, images: Tensor) -> Tensor:
        values = images[0].numel()
        mean = images.mean((1, 2, 3), keepdim=True)
        deviation = images.std((1, 2, 3), keepdim=True, correction=0)
        return (images - mean) / deviation.clamp_min(1 / (255 * math.sqrt(values)))
