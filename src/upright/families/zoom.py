"""Zoom about the centre, the same along both axes. Factors above 1 make the content larger."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import Size, Spatial, family, matrix_of

__all__ = ["Zoom"]


@family
class Zoom(Spatial):
    """Scales images by a factor, of which a pose holds the logarithm."""

    name: ClassVar[str] = "zoom"
    axes = (Axis("zoom", "factor", math.log(0.9), math.log(1.1)),)
    additive: ClassVar[bool] = True
    conformal: ClassVar[bool] = True

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        del size
        factor = values[..., 0].exp()
        return matrix_of((factor, 0, 0), (0, factor, 0))
