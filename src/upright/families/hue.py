"""Hue: colours turn about the line of greys, from red over green to blue for positive angles."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import OfPixels, family
from upright.families.rotate import cos_sin_degrees
from upright.families.saturation import has_colour

__all__ = ["Hue"]


@family
class Hue(OfPixels):
    """Turns the cube of colours about its diagonal by an angle in degrees (Rodrigues' formula)."""

    name: ClassVar[str] = "hue"
    axes = (Axis("hue", "degrees", -30.0, 30.0, period=360.0),)
    additive: ClassVar[bool] = True

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        cos, sin = cos_sin_degrees(values[..., 0])
        if not has_colour(images, self.name):
            return images + 0 * cos
        grey = images.mean(-3, keepdim=True)
        across = (torch.roll(images, 1, -3) - torch.roll(images, -1, -3)) / math.sqrt(3)
        # In this form an angle of 0 leaves every bit.
        return (images + (1 - cos) * (grey - images) + sin * across).clamp(0, 1)
