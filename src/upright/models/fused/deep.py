"""Residual blocks of 64 channels in one CUDA kernel, for images of eight lines of eight pixels.

The kernel is ``deep.cu``: the weights of such a convolution do not fit into registers, as those of
fewer channels do, and come through shared memory. It is launched like that of ``stage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from upright.models.fused.stage import Shape
from upright.models.fused.warps import LINES

__all__ = ["DeepShape", "shape_of"]

_SLOTS = 3
"""Of the ring of weights: one that is computed with, and two that are on their way."""


@dataclass(frozen=True)
class DeepShape(Shape):
    """Activations of many channels and few pixels that go through a stage."""

    program: ClassVar[str] = "deep"

    @property
    def images(self) -> int:
        """That a group of threads takes. All read the same weights; but an ascent has few images,
        and is over sooner where more groups share them."""
        return 1 if self.signs else 4

    @property
    def sides(self) -> int:
        """How many times eight channels a warp takes."""
        return 2 if self.signs else 4

    @property
    def threads(self) -> int:
        return 32 * self.images * self.channels // (8 * self.sides)

    @property
    def shared_bytes(self) -> int:
        """Of activations, sums and weights. Two groups of threads have room at once, or four."""
        pixels = self.height * (self.width + 1) + 1 + self.height * self.width + 1
        step = 3 * 32 * self.channels  # a column of taps, half of the channels before, all after
        return 2 * (self.images * self.channels * pixels + _SLOTS * step)

    @property
    def fits(self) -> bool:
        size = self.channels, self.height, self.width
        return size == (64, LINES, LINES) and self.is_half and not self.stem

    @property
    def options(self) -> list[str]:
        """For the compiler."""
        return self.options_with(
            IMAGES=self.images,
            SIDES=self.sides,
            GROUPS=512 // self.threads,
            SLOTS=_SLOTS,
            SIGNS=int(self.signs),
        )


def shape_of(active: Tensor, *, stem: bool, signs: bool = False) -> Shape:
    """How a kernel takes activations, N x H x W x C, through a stage, where one does."""
    _, height, width, channels = active.shape
    deep = DeepShape(channels, height, width, active.dtype, stem, signs)
    return deep if deep.fits else Shape(channels, height, width, active.dtype, stem, signs)
