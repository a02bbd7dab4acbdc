"""Contrast: how far pixels are from the mean of their image, over all its channels.

The image is what there is when contrast acts: with a ``view``, all of the larger one; left of a
rotation in a chain, with its corners.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import OfPixels, family

__all__ = ["Contrast"]


@family
class Contrast(OfPixels):
    """Multiplies the distance to the mean by a factor, of which a pose holds the logarithm."""

    name: ClassVar[str] = "contrast"
    axes = (Axis("contrast", "factor", -math.log(1.25), math.log(1.25)),)
    additive: ClassVar[bool] = True

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        factor, mean = values[..., 0].exp(), images.mean((-3, -2, -1), keepdim=True)
        # In this form a factor of 1 leaves every bit.
        return (images * factor + mean * (1 - factor)).clamp(0, 1)
