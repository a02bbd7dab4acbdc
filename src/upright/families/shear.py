"""Shear about the centre.

``shear_x > 0`` leans the content to the right as italics lean, so that its top moves right;
``shear_y > 0`` lifts its right side. In degrees: the angle by which upright, or level, lines turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import Size, Spatial, family, matrix_of

__all__ = ["Shear"]


@family
class Shear(Spatial):
    """Leans images by angles in degrees."""

    name: ClassVar[str] = "shear"
    axes = (Axis("shear_x", "degrees", -10.0, 10.0), Axis("shear_y", "degrees", -10.0, 10.0))

    def __init__(self, axes: Sequence[Axis] | None = None) -> None:
        super().__init__(axes)
        if sum(axis.reach for axis in self.axes) >= 90:  # both ways at once
            raise ValueError(
                "shear by so much leaves no image: both angles together must be below 90 degrees"
            )

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        del size
        across, down = torch.tan(torch.deg2rad(-values)).unbind(-1)
        return matrix_of((1, across, 0), (down, 1, 0))
