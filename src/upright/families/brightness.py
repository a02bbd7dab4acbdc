"""Brightness: every pixel lighter or darker by the same amount, as far as there is light."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import OfPixels, family

__all__ = ["Brightness"]


@family
class Brightness(OfPixels):
    """Adds a number, of which 1 is the way from black to white."""

    name: ClassVar[str] = "brightness"
    axes = (Axis("brightness", "", -0.2, 0.2),)
    additive: ClassVar[bool] = True

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        return (images + values[..., 0]).clamp(0, 1)
