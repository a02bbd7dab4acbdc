"""Saturation: how far the channels of a pixel are from its grey. Grey images have none."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import OfPixels, family

__all__ = ["Saturation", "has_colour"]


@family
class Saturation(OfPixels):
    """Multiplies the distance to grey by a factor, of which a pose holds the logarithm.

    Grey is the mean of red, green and blue.
    """

    name: ClassVar[str] = "saturation"
    axes = (Axis("saturation", "factor", -math.log(2), math.log(2)),)
    additive: ClassVar[bool] = True

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        factor = values[..., 0].exp()
        if not has_colour(images, self.name):
            return images + 0 * factor  # in the shape that poses give it
        grey = images.mean(-3, keepdim=True)
        return (images * factor + grey * (1 - factor)).clamp(0, 1)


def has_colour(images: Tensor, name: str) -> bool:
    """Whether images are red, green and blue; of one channel, they are grey."""
    channels = images.shape[-3]
    if channels not in (1, 3):
        raise ValueError(
            f"{name} needs images of one channel or of three, but these have {channels}"
        )
    return channels == 3
