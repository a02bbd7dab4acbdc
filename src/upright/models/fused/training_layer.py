"""A convolution in training mode with the norms on both sides: a CUDA kernel forward, one backward.

The kernels are in ``training_layer.cu``. They take convolutions that leave the shape of activations
as it is; the others are Triton's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache

import torch
from torch import Tensor

from upright.models.fused.nvrtc import CudaKernel, kernels_for
from upright.models.fused.warp_tile import WARP_LINES, WARP_PIXELS, Activations
from upright.models.fused.weight_layout import Layers, Weights

__all__ = ["Constant", "FusedLayers", "LayerKernels", "LayerShape", "layer_kernels"]


class Constant(IntEnum):
    """What a thread block keeps of each channel in shared memory: rows, by the names they have in
    ``training_layer.cu``, too.

    The gradient of a norm's input is linear in that of its output, which was found, and in the raw
    input. BEFORE is the norm before the convolution: its mean and inverse deviation, and both of
    them with its weights as a factor and an offset.
    """

    FOUND_FACTOR = 0
    RAW_FACTOR = 1
    GRADIENT_OFFSET = 2
    MEAN_BEFORE = 3
    INVERSE_BEFORE = 4
    FACTOR_BEFORE = 5
    OFFSET_BEFORE = 6


@dataclass(frozen=True)
class LayerShape(Activations):
    """Activations on both sides of a convolution, and how its kernels cut the work."""

    epsilon: float
    """What the norms add to a variance."""

    @property
    def block_lines(self) -> int:
        """Lines of an image that a thread block takes."""
        return 2 * WARP_LINES if self.height % (2 * WARP_LINES) == 0 else WARP_LINES

    @property
    def blocks_per_image(self) -> int:
        """Thread blocks that share an image."""
        return self.height // self.block_lines

    @property
    def threads(self) -> int:
        """Threads of a thread block of the forward kernel."""
        return 32 * self.warps_of(self.block_lines)

    @property
    def threads_backward(self) -> int:
        """Those of the backward kernel: more warps, for the gradient of the weights alone."""
        warps = self.slices if self._narrow else self._splits * self.slices**2
        return self.threads + 32 * warps

    @property
    def _splits(self) -> int:
        """Parts in which a thread block of wide lines sums the gradient of weights (split-K)."""
        return self.width // WARP_PIXELS * max(1, self.block_lines // WARP_LINES // self.slices)

    @property
    def shared_bytes(self) -> int:
        """The size of ``struct Shared`` in ``thread_block.cuh``."""
        padded = (self.block_lines + 2) * (self.width + 1) + 1
        own = self.block_lines * self.width + 64 // self.channels
        activations = 2 * self.channels * (padded + own)
        constants = 4 * len(Constant) * self.channels
        sums = constants + 4 * self.threads
        if self._narrow:
            return activations + 224 * self.channels + sums
        gradient = 4 * self._splits * self.channels * (9 * self.channels + 8)
        return max(activations, gradient) + 18 * self.channels**2 + sums

    @property
    def fits(self) -> bool:
        """Whether the kernels take it."""
        divides = self.tiles_evenly or self._narrow
        return divides and self.threads_backward <= 512 and self.shared_bytes <= 96 * 1024

    @property
    def _narrow(self) -> bool:
        """Whether a thread block takes a whole image, and weights go through a warp's registers."""
        size = self.channels, self.height, self.width
        return size == (64, WARP_LINES, WARP_LINES) and self.is_half

    @property
    def options(self) -> list[str]:
        """For the compiler."""
        constants = {row.name: row.value for row in Constant}
        return self.options_with(
            BLOCK_LINES=self.block_lines,
            EPSILON=f"{self.epsilon}f",
            CONSTANTS=len(Constant),
            **constants,
        )


@dataclass(frozen=True)
class LayerKernels:
    """The kernels for one shape."""

    shape: LayerShape
    _forward: CudaKernel
    _backward: CudaKernel

    def forward(
        self,
        raw_before: Tensor,
        norm_before: tuple[Tensor, Tensor, Tensor],
        weights: Tensor,
        sums: Tensor,
        shortcut: Tensor | None,
        *,
        keep: bool = True,
    ) -> tuple[Tensor | None, Tensor]:
        """Norm, activate, convolve, add the shortcut, and sum each channel and its square.

        Args:
            raw_before: what the norm before the convolution reads, N x H x W x C.
            norm_before: its sums, factors and offsets; sums are two rows of C.
            weights: of the convolution, by ``as_fragments``.
            sums: two rows to which those of the result are added.
            shortcut: what to add to the convolution.
            keep: whether the activations are wanted; ``backward`` makes them again.

        Returns:
            The activations that were convolved, and the result.
        """
        active, raw = torch.empty_like(raw_before) if keep else None, torch.empty_like(raw_before)
        with torch.cuda.device_of(raw_before):
            self._forward.launch(
                len(raw) * self.shape.blocks_per_image,
                raw_before,
                *norm_before,
                weights,
                shortcut,
                active,
                raw,
                sums,
                sums.stride(0),
                len(raw),
            )
        return active, raw

    def backward(
        self,
        found: Tensor,
        raw: Tensor,
        norm: tuple[Tensor, Tensor, Tensor],
        skip: Tensor | None,
        weights: Tensor,
        raw_before: Tensor,
        norm_before: tuple[Tensor, Tensor, Tensor],
        shortcut: Tensor | None,
        sums: Tensor,
        weights_gradient: Tensor,
        *,
        keep: bool = True,
    ) -> tuple[Tensor | None, Tensor]:
        """Go back through the norm after a convolution, the convolution, and the ReLU before it.

        Args:
            found: the gradient of what the norm gives, N x H x W x C.
            raw: what the norm read.
            norm: its sums, those of its gradient (``sums`` of the call before), and its factors.
            skip: a gradient that reaches ``raw`` by another way, of a shape that ``takes`` allows.
            weights: of the convolution, by ``as_fragments``, transposed.
            raw_before: what the norm before the convolution read.
            norm_before: its sums, factors and offsets.
            shortcut: a gradient that reaches the activations by another way.
            sums: two rows to which are added those of the result, alone and times the normal input.
            weights_gradient: after x 3 x 3 x before, float32; that of the weights is added to it.
            keep: whether the gradient of ``raw`` is wanted.

        Returns:
            The gradient of ``raw``, and that of what the norm before the convolution gave.
        """
        gradient, before = torch.empty_like(raw) if keep else None, torch.empty_like(raw)
        with torch.cuda.device_of(raw):
            self._backward.launch(
                len(raw) * self.shape.blocks_per_image,
                found,
                raw,
                *norm,
                skip,
                weights,
                raw_before,
                *norm_before,
                shortcut,
                gradient,
                before,
                sums,
                weights_gradient,
                sums.stride(0),
                len(raw),
                int(skip is not None and skip.shape != raw.shape),
            )
        return gradient, before

    def takes(self, skip: Tensor | None) -> bool:
        """Whether a gradient comes by a shortcut that ``backward`` knows.

        It has the shape of activations, or half the height and width and twice the channels: then
        the shortcut is an average over two by two pixels, with as many zeros on either side.
        """
        height, width, channels = self.shape.height, self.shape.width, self.shape.channels
        known = (height, width, channels), (height // 2, width // 2, 2 * channels)
        return skip is None or skip.shape[1:] in known


@cache
def layer_kernels(shape: LayerShape, device: torch.device) -> LayerKernels | None:
    """Compile the kernels for a shape; None where it does not fit, or cannot be compiled here."""
    found = kernels_for(shape, device, "training_layer.cu", ("layer_forward", "layer_backward"))
    if found is None:
        return None
    forward, backward = found
    return LayerKernels(shape, forward, replace(backward, threads=shape.threads_backward))


class FusedLayers:
    """The convolutions that ``training_layer.cu`` takes, and their weights as it reads them."""

    def __init__(self, layers: Layers, weights: Weights, standard: Tensor) -> None:
        self.kernels: dict[int, LayerKernels] = {}
        self.weights: dict[int, Tensor] = {}
        self.transposed: dict[int, Tensor] = {}
        for stage in layers.stages:
            # The convolution before a stage has its shape, too, but a shortcut from another.
            numbers = range(max(1, 2 * stage.start), 2 * stage.stop + 1)
            channels, (height, width) = layers.widths[numbers[0]], standard.shape[1:3]
            for block in layers.blocks[: stage.start]:
                height, width = -(-height // block.stride), -(-width // block.stride)
            shape = LayerShape(channels, height, width, standard.dtype, layers.norms[0].eps)
            kernels = layer_kernels(shape, standard.device)
            if kernels is not None:
                self.kernels |= dict.fromkeys(numbers, kernels)
                self.weights |= zip(numbers, weights.fragments(numbers), strict=True)
                back = weights.fragments(numbers, transposed=True)
                self.transposed |= zip(numbers, back, strict=True)
