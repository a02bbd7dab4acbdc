"""Stretch about the centre, along each axis by a factor of its own."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import Size, Spatial, family, matrix_of

__all__ = ["Stretch"]


@family
class Stretch(Spatial):
    """Scales width and height by factors, of which a pose holds the logarithms."""

    name: ClassVar[str] = "stretch"
    axes = (
        Axis("stretch_x", "factor", math.log(0.9), math.log(1.1)),
        Axis("stretch_y", "factor", math.log(0.9), math.log(1.1)),
    )
    additive: ClassVar[bool] = True

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        del size
        across, down = values.exp().unbind(-1)
        return matrix_of((across, 0, 0), (0, down, 0))
