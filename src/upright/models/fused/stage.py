"""A stage of residual blocks in one CUDA kernel, where their activations fit into shared memory.

The kernel is ``stage.cu``. It is CUDA C++ and not Triton, because a convolution reads its
neighbours' activations from shared memory, which Triton does not let a program address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from upright.models.fused.nvrtc import CudaKernel, kernels_for
from upright.models.fused.warp_tile import Activations
from upright.models.fused.weight_layout import Weights

__all__ = ["StageShape", "run_stage", "stage_kernel"]

_MOST_SHARED_BYTES = 227 * 1024


@dataclass(frozen=True)
class StageShape(Activations):
    """Activations that go through a stage, and how its kernel cuts the work."""

    program: ClassVar[str] = "stage"
    """The name of the kernel, and of its file."""
    stem: bool = False
    """Whether the network's first convolution comes first."""
    signs: bool = False
    """Whether there is a backward kernel, too, and what it needs is kept."""

    @property
    def images_per_block(self) -> int:
        """Images that a thread block takes: enough for four warps."""
        return max(1, 4 // self._warps_per_image)

    @property
    def threads(self) -> int:
        return 32 * self.images_per_block * self._warps_per_image

    @property
    def shared_bytes(self) -> int:
        padded = (self.height + 2) * (self.width + 1) + 1
        values = self.channels * self.images_per_block
        return 2 * values * (2 * padded + self.height * self.width)

    @property
    def fits(self) -> bool:
        """Whether the kernel takes it. More warps would lack registers."""
        return self.tiles_evenly and self.threads <= 512 and self.shared_bytes <= _MOST_SHARED_BYTES

    @property
    def options(self) -> list[str]:
        """For the compiler."""
        # The occupancy: 128 registers a thread, and a kibibyte of shared memory beside their own.
        room = (_MOST_SHARED_BYTES + 1024) // (self.shared_bytes + 1024)
        return self.options_with(
            IMAGES=self.images_per_block,
            BLOCKS_PER_SM=max(1, min(512 // self.threads, room)),
            STEM=int(self.stem),
            SIGNS=int(self.signs),
        )

    def grid_for(self, images: int) -> int:
        """How many thread blocks so many images take."""
        return -(-images // self.images_per_block)

    def residual_blocks_of(self, convolutions: range) -> int:
        """How many residual blocks these convolutions make, beside the network's first."""
        return (len(convolutions) - self.stem) // 2

    @property
    def _warps_per_image(self) -> int:
        return max(1, self.warps_of(self.height))


@cache
def stage_kernel(shape: StageShape, device: torch.device) -> CudaKernel | None:
    """Compile the kernel for a shape; None where it does not fit, or cannot be compiled here."""
    found = kernels_for(shape, device, f"{shape.program}.cu", (shape.program,))
    return None if found is None else found[0]


def run_stage(
    kernel: CudaKernel,
    shape: StageShape,
    active: Tensor,
    raw: Tensor,
    weights: Weights,
    convolutions: range,
) -> tuple[Tensor, Tensor]:
    """Take activations through residual blocks.

    Args:
        kernel: of the shape.
        shape: of the activations.
        active: what enters the first convolution, N x H x W x C, contiguous.
        raw: what is added to the second of a block, like ``active``; not read with a stem.
        weights: of the network, of the same dtype.
        convolutions: of the blocks.

    Returns:
        The sums that leave the last block, and the activations, normed by the norm after it.
    """
    scale, shift = weights.norms(convolutions)
    raw_out, active_out = torch.empty_like(raw), torch.empty_like(active)
    with torch.cuda.device_of(active):
        kernel.launch(
            shape.grid_for(len(active)),
            active,
            raw,
            active_out,
            raw_out,
            weights.fragments(convolutions),
            scale,
            shift,
            None,
            len(active),
            shape.residual_blocks_of(convolutions),
        )
    return raw_out, active_out
