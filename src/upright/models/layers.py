"""Layers that several networks share."""

from __future__ import annotations

import math

from torch import Tensor, nn

__all__ = ["Standardise", "batch_norm"]


class Standardise(nn.Module):
    """Gives each image mean 0 and standard deviation 1, over all its pixels and channels.

    The deviation is bounded from below by that of a flat image with one grey level of noise in one
    value, so that a flat image does not blow up.
    """

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean((1, 2, 3), keepdim=True)
        deviation = images.std((1, 2, 3), keepdim=True, correction=0)
        return (images - mean) / deviation.clamp_min(self.least_deviation(images[0].numel()))

    @staticmethod
    def least_deviation(values: int) -> float:
        """Give the lower bound of the deviation for an image of so many values."""
        return 1 / (255 * math.sqrt(values))


def batch_norm(channels: int, epsilon: float = 1e-5) -> nn.BatchNorm2d:
    """Make a batch norm that does not count batches: nothing reads the count, and on a GPU it costs
    as much as a layer."""
    norm = nn.BatchNorm2d(channels, eps=epsilon)
    norm.num_batches_tracked = None
    return norm
