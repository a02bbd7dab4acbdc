"""A family of pixels: darker towards the corners, as through an old lens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from upright.families import Axis, OfPixels, family

__all__ = ["Vignette"]


@family
class Vignette(OfPixels):
    """Takes a part of the light away: none in the centre, that part in the corners."""

    name: ClassVar[str] = "vignette"
    axes = (Axis("vignette", low=0.0, high=0.5),)

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        y, x = (_from_the_centre(images.shape[place], images) for place in (-2, -1))
        return images * (1 - values[..., 0] * (x.square() + y[:, None].square()) / 2)


def _from_the_centre(count: int, like: Tensor) -> Tensor:
    """From -1 at one edge to 1 at the other, at the middles of pixels."""
    places = torch.arange(1 - count, count, 2, device=like.device, dtype=like.dtype)
    return places / count
