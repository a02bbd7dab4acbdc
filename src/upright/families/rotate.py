"""Rotation about the centre. ``angle > 0`` turns the content counter-clockwise as displayed.

In coordinates relative to the centre (x right, y down) that is ``[[cos, sin], [-sin, cos]]``: the
sign of the sine is the one that turns counter-clockwise when y points down.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import Size, Spatial, family, matrix_of

__all__ = ["Rotate", "cos_sin_degrees"]


@family
class Rotate(Spatial):
    """Turns images by an angle in degrees."""

    name: ClassVar[str] = "rotate"
    axes = (Axis("angle", "degrees", -30.0, 30.0, count=31, period=360.0),)
    additive: ClassVar[bool] = True
    conformal: ClassVar[bool] = True

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        del size
        cos, sin = cos_sin_degrees(values[..., 0])
        return matrix_of((cos, sin, 0), (-sin, cos, 0))


def cos_sin_degrees(angle: Tensor) -> tuple[Tensor, Tensor]:
    """Give cosine and sine of an angle in degrees, exact at every multiple of 90.

    The angle is reduced to [-45, 45] before it is turned into radians, which no float holds
    exactly.
    """
    quarter_turns = torch.round(angle.detach() / 90)
    rest = torch.deg2rad(angle - 90 * quarter_turns)
    cos, sin = torch.cos(rest), torch.sin(rest)
    odd = torch.remainder(quarter_turns, 2) == 1
    sign = torch.where(torch.remainder(quarter_turns, 4) >= 2, -1.0, 1.0).to(angle.dtype)
    return sign * torch.where(odd, -sin, cos), sign * torch.where(odd, cos, sin)
