"""Gamma: pixels to the power of a number. Above 1 mid-tones get darker, below 1 lighter."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from upright.families.axis import Axis
from upright.families.base import OfPixels, family

__all__ = ["Gamma"]


@family
class Gamma(OfPixels):
    """Raises pixels to a power, of which a pose holds the logarithm."""

    name: ClassVar[str] = "gamma"
    axes = (Axis("gamma", "factor", -math.log(1.5), math.log(1.5)),)
    additive: ClassVar[bool] = True

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        power = values[..., 0].exp()
        # Black stays black, with no slope: that of a power below 1 has no end there.
        lit = images > 0
        raised = torch.where(lit, torch.where(lit, images, 1).clamp(max=1).pow(power), 0)
        # A library's first power need not be the number itself to the last bit; its slope is right.
        exact = images.detach() + (raised - raised.detach())
        return torch.where(power == 1, exact, raised)
