"""Residual blocks of one shape forward and back to what enters them, in one CUDA kernel each way.

The kernels are those of ``stage.cu`` and ``deep.cu`` with ``SIGNS``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from upright.models.fused.nvrtc import CudaKernel, kernels_for
from upright.models.fused.stage import Shape
from upright.models.fused.weights import Weights

__all__ = ["BothWays", "Passed", "both_ways"]


@dataclass(frozen=True)
class Passed:
    """What leaves blocks, and what the way back through them needs."""

    raw: Tensor
    """The sums that leave the last block."""
    active: Tensor
    """Their activations, normed by the norm after it."""
    signs: Tensor
    """Of each activation on the way whether it is positive, as the kernels lay it out."""


@dataclass(frozen=True)
class BothWays:
    """The kernels of one shape."""

    shape: Shape
    _forward: CudaKernel
    _back: CudaKernel

    def forward(self, active: Tensor, raw: Tensor, weights: Weights, convolutions: range) -> Passed:
        """Take activations through residual blocks; the arguments are those of ``run_blocks``."""
        shape, blocks = self.shape, self.shape.blocks_of(convolutions)
        groups = shape.groups_for(len(active))
        size = (2 * blocks + 1, groups, shape.threads, 2)
        signs = torch.empty(size, dtype=torch.int32, device=active.device)
        passed = Passed(torch.empty_like(raw), torch.empty_like(active), signs)
        scale, shift = weights.norms(convolutions)
        with torch.cuda.device_of(active):
            self._forward.launch(
                groups,
                active,
                raw,
                passed.active,
                passed.raw,
                weights.arranged(convolutions),
                scale,
                shift,
                signs,
                len(active),
                blocks,
            )
        return passed

    def back(
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
            signs: kept on the way forward.
            weights: as on the way forward.
            convolutions: as on the way forward.
            active_shortcut: whether the first block's shortcut begins after norm and leaky ReLU.

        Returns:
            The gradient of the sums that enter, or with a stem that of the images.
        """
        found, blocks = torch.empty_like(gradient), self.shape.blocks_of(convolutions)
        before = range(convolutions.stop - 1 - 2 * blocks, convolutions.stop - 1)
        with torch.cuda.device_of(gradient):
            self._back.launch(
                self.shape.groups_for(len(gradient)),
                gradient,
                found,
                weights.arranged(convolutions, transposed=True),
                weights.norms(before)[0],
                signs,
                int(active_shortcut),
                len(gradient),
                blocks,
            )
        return found


@cache
def both_ways(shape: Shape, device: torch.device) -> BothWays | None:
    """Compile the kernels for a shape; None where it does not fit, or cannot be compiled here."""
    names = shape.program, f"{shape.program}_back"
    found = kernels_for(shape, device, f"{shape.program}.cu", names)
    return None if found is None else BothWays(shape, *found)
