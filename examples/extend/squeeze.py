"""A family that moves points: narrower and taller, or wider and lower, with the area as it is."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from upright.families import Axis, Size, Spatial, family, matrix_of

__all__ = ["Squeeze"]


@family
class Squeeze(Spatial):
    """Scales the width by a factor and the height by its inverse. Above 1, content is wider."""

    name: ClassVar[str] = "squeeze"
    axes = (Axis("squeeze", "factor", -math.log(1.2), math.log(1.2)),)
    additive: ClassVar[bool] = True

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        del size
        factor = values[..., 0].exp()
        return matrix_of((factor, 0, 0), (0, 1 / factor, 0))
