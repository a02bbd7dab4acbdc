"""Residual blocks of 64 channels in one CUDA kernel, for images of eight lines of eight pixels.

The kernel is ``pipelined_stage.cu``: the weights of such a convolution do not fit into registers,
as those of fewer channels do, and come through a ring in shared memory, loads beside arithmetic. It
is launched like that of ``stage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from upright.models.fused.stage import StageShape
from upright.models.fused.warp_tile import WARP_LINES

__all__ = ["PipelinedShape", "stage_shape_of"]

_SLOTS = 3
"""Slots of the ring of weights: one that is computed with, and two that are on their way."""


@dataclass(frozen=True)
class PipelinedShape(StageShape):
    """Activations of many channels and few pixels that go through a stage."""

    program: ClassVar[str] = "pipelined_stage"

    @property
    def images_per_block(self) -> int:
        """Images that a thread block takes. All read the same weights; but an ascent has few, and
        is over sooner where more thread blocks share them."""
        return 1 if self.signs else 4

    @property
    def n8_tiles(self) -> int:
        """How many times eight channels, the n of an mma, a warp takes."""
        return 2 if self.signs else 4

    @property
    def threads(self) -> int:
        return 32 * self.images_per_block * self.channels // (8 * self.n8_tiles)

    @property
    def shared_bytes(self) -> int:
        """Of activations, residuals and weights. Two thread blocks have room at once, or four."""
        pixels = self.height * (self.width + 1) + 1 + self.height * self.width + 1
        step = 3 * 32 * self.channels  # a column of taps, half of the channels before, all after
        return 2 * (self.images_per_block * self.channels * pixels + _SLOTS * step)

    @property
    def fits(self) -> bool:
        size = self.channels, self.height, self.width
        return size == (64, WARP_LINES, WARP_LINES) and self.is_half and not self.stem

    @property
    def options(self) -> list[str]:
        """For the compiler."""
        return self.options_with(
            IMAGES=self.images_per_block,
            N8_TILES=self.n8_tiles,
            BLOCKS_PER_SM=512 // self.threads,
            SLOTS=_SLOTS,
            SIGNS=int(self.signs),
        )


def stage_shape_of(active: Tensor, *, stem: bool, signs: bool = False) -> StageShape:
    """How a kernel takes activations, N x H x W x C, through a stage, where one does."""
    _, height, width, channels = active.shape
    pipelined = PipelinedShape(channels, height, width, active.dtype, stem, signs)
    if pipelined.fits:
        return pipelined
    return StageShape(channels, height, width, active.dtype, stem, signs)
