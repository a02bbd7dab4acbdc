"""Perspective: the image as a plane that is tilted out of the picture about its centre.

``tilt_x > 0`` takes the right edge farther away, ``tilt_y > 0`` the lower one: what is there
becomes smaller by the factor ``1 + tilt``, and what is on the other side larger by ``1 - tilt``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import Size, Spatial, family, matrix_of

__all__ = ["Perspective"]


@family
class Perspective(Spatial):
    """Tilts images; a plain number says by what part an edge shrinks."""

    name: ClassVar[str] = "perspective"
    axes = (Axis("tilt_x", "", -0.2, 0.2), Axis("tilt_y", "", -0.2, 0.2))
    additive: ClassVar[bool] = True
    projective: ClassVar[bool] = True

    def __init__(self, axes: Sequence[Axis] | None = None) -> None:
        super().__init__(axes)
        if sum(axis.reach for axis in self.axes) >= 1:  # a corner would come behind the viewer
            raise ValueError(
                "perspective by so much leaves no image: both tilts together must be below 1"
            )

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        height, width = size
        across, down = values.unbind(-1)
        return matrix_of((1, 0, 0), (0, 1, 0), (across * (2 / width), down * (2 / height), 1))
