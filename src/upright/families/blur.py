"""Blur by a Gaussian. Beyond its edges an image goes on as its border pixels are.

The Gaussian ends at three times the upper limit of the axis: a pose beyond its limit is cut short.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import OfPixels, family

__all__ = ["Blur"]

_TINY = 1e-16
"""Square pixels: what a Gaussian without width is taken for."""


@family
class Blur(OfPixels):
    """Blurs with a standard deviation in pixels, cut off at three times the largest one."""

    name: ClassVar[str] = "blur"
    axes = (Axis("blur", "px", 0.0, 1.0),)

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        reach = max(1, math.ceil(3 * self.axes[0].high))
        places = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
        variance = values[..., 0].square()
        weights = [torch.exp(-place.square() / (2 * variance + _TINY)) for place in places]
        total = torch.stack(weights).sum(0)
        for dimension in (-1, -2):
            images = _weighted(images, weights, reach, dimension) / total
        return images


def _weighted(images: Tensor, weights: list[Tensor], reach: int, dimension: int) -> Tensor:
    """Add up copies of the images, shifted along one dimension."""
    size = images.shape[dimension]
    place = torch.arange(-reach, size + reach, device=images.device).clamp(0, size - 1)
    wide = images.index_select(dimension, place)
    return sum(  # type: ignore[return-value]
        weight * wide.narrow(dimension, start, size) for start, weight in enumerate(weights)
    )
