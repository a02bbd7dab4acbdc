"""Translation. ``dx > 0`` moves the content right, ``dy > 0`` down."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import Size, Spatial, family, matrix_of

__all__ = ["Shift"]


@family
class Shift(Spatial):
    """Moves images by dx and dy, in pixels."""

    name: ClassVar[str] = "shift"
    axes = (
        Axis("dx", "px", -3.0, 3.0, side="width"),
        Axis("dy", "px", -3.0, 3.0, side="height"),
    )
    additive: ClassVar[bool] = True

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        del size
        dx, dy = values.unbind(-1)
        return matrix_of((1, 0, dx), (0, 1, dy))
