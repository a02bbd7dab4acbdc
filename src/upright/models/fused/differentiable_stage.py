"""A stage of residual blocks with the gradient of what enters it: a CUDA kernel forward, and one
backward.

The kernels are those of ``stage.cu`` and ``pipelined_stage.cu`` with ``SIGNS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from upright.models.fused.nvrtc import CudaKernel, kernels_for
from upright.models.fused.stage import StageShape
from upright.models.fused.weight_layout import Weights

__all__ = ["DifferentiableStage", "StageOutput", "differentiable_stage"]


@dataclass(frozen=True)
class StageOutput:
    """What leaves a stage, and what the backward kernel needs."""

    raw: Tensor
    """The sums that leave the last block."""
    active: Tensor
    """Their activations, normed by the norm after it."""
    signs: Tensor
    """Of each activation inside whether it is positive, as the kernels lay it out."""


@dataclass(frozen=True)
class DifferentiableStage:
    """The kernels for one shape."""

    shape: StageShape
    _forward: CudaKernel
    _backward: CudaKernel

    def forward(
        self, active: Tensor, raw: Tensor, weights: Weights, convolutions: range
    ) -> StageOutput:
        """Take activations through residual blocks; the arguments are those of ``run_stage``."""
        shape, blocks = self.shape, self.shape.residual_blocks_of(convolutions)
        grid = shape.grid_for(len(active))
        size = (2 * blocks + 1, grid, shape.threads, 2)
        signs = torch.empty(size, dtype=torch.int32, device=active.device)
        output = StageOutput(torch.empty_like(raw), torch.empty_like(active), signs)
        scale, shift = weights.norms(convolutions)
        with torch.cuda.device_of(active):
            self._forward.launch(
                grid,
                active,
                raw,
                output.active,
                output.raw,
                weights.fragments(convolutions),
                scale,
                shift,
                signs,
                len(active),
                blocks,
            )
        return output

    def backward(
        self,
        gradient: Tensor,
        signs: Tensor,
        weights: Weights,
        convolutions: range,
        *,
        active_shortcut: bool,
    ) -> Tensor:
        """Take a gradient back through residual blocks.

        Args:
            gradient: of the sums that leave the last block, N x H x W x C, contiguous.
            signs: kept by ``forward``.
            weights: as for ``forward``.
            convolutions: as for ``forward``.
            active_shortcut: whether the first block's shortcut begins after norm and leaky ReLU.

        Returns:
            The gradient of the sums that enter, or with a stem that of the images.
        """
        found, blocks = torch.empty_like(gradient), self.shape.residual_blocks_of(convolutions)
        before = range(convolutions.stop - 1 - 2 * blocks, convolutions.stop - 1)
        with torch.cuda.device_of(gradient):
            self._backward.launch(
                self.shape.grid_for(len(gradient)),
                gradient,
                found,
                weights.fragments(convolutions, transposed=True),
                weights.norms(before)[0],
                signs,
                int(active_shortcut),
                len(gradient),
                blocks,
            )
        return found


@cache
def differentiable_stage(shape: StageShape, device: torch.device) -> DifferentiableStage | None:
    """Compile the kernels for a shape; None where it does not fit, or cannot be compiled here."""
    names = shape.program, f"{shape.program}_backward"
    found = kernels_for(shape, device, f"{shape.program}.cu", names)
    return None if found is None else DifferentiableStage(shape, *found)
