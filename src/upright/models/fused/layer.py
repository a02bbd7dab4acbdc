"""A convolution in training mode with the norms on both sides, in one CUDA kernel for each way.

The kernels are in ``layer.cu``. They take convolutions that leave the shape of activations as it
is; the others, and all other networks, are Triton's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from upright.models.fused.nvrtc import CudaKernel, kernels_for
from upright.models.fused.warps import HALF, LINES, STRIP, Activations
from upright.models.fused.weights import Layers, Weights

__all__ = ["LayerKernels", "LayerShape", "WholeLayers", "layer_kernels"]


@dataclass(frozen=True)
class LayerShape(Activations):
    """Activations on both sides of a convolution, and how its kernels cut the work."""

    epsilon: float
    """Of the norms."""

    @property
    def lines(self) -> int:
        """That a group of threads takes."""
        return 2 * LINES if self.height % (2 * LINES) == 0 else LINES

    @property
    def groups(self) -> int:
        """Of an image."""
        return self.height // self.lines

    @property
    def threads(self) -> int:
        """Of a group, on the way forward."""
        return 32 * self.warps_of(self.lines)

    @property
    def threads_backward(self) -> int:
        """Of a group: some are for the gradient of the weights alone."""
        depth = self.channels // HALF
        return self.threads + 32 * (depth if self._narrow else self._parts * depth**2)

    @property
    def _parts(self) -> int:
        """In which a group of wide lines sums the gradient of the weights."""
        return self.width // STRIP * max(1, self.lines // LINES // (self.channels // HALF))

    @property
    def shared_bytes(self) -> int:
        """Of a group, both ways."""
        padded = (self.lines + 2) * (self.width + 1) + 1
        own = self.lines * self.width + 64 // self.channels
        activations, constants = 2 * self.channels * (padded + own), 28 * self.channels
        sums = constants + 4 * self.threads
        if self._narrow:
            return activations + 224 * self.channels + sums
        gradient = 4 * self._parts * self.channels * (9 * self.channels + 8)
        return max(activations, gradient) + 18 * self.channels**2 + sums

    @property
    def fits(self) -> bool:
        """Whether the kernels take it."""
        divide = self.divide or self._narrow
        return divide and self.threads_backward <= 512 and self.shared_bytes <= 96 * 1024

    @property
    def _narrow(self) -> bool:
        """Whether a group takes a whole image, of which weights go through a warp's registers."""
        return (self.channels, self.height, self.width) == (64, LINES, LINES) and self.is_half

    @property
    def options(self) -> list[str]:
        """For the compiler."""
        return self.options_with(GROUP=self.lines, EPSILON=f"{self.epsilon}f")


@dataclass(frozen=True)
class LayerKernels:
    """Those of one shape."""

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
            weights: of the convolution, by ``arrange``.
            sums: two rows to which those of the result are added.
            shortcut: what to add to the convolution.
            keep: whether the activations are wanted; ``backward`` makes them again.

        Returns:
            The activations that were convolved, and the result.
        """
        active, raw = torch.empty_like(raw_before) if keep else None, torch.empty_like(raw_before)
        with torch.cuda.device_of(raw_before):
            self._forward.launch(
                len(raw) * self.shape.groups,
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
            weights: of the convolution, by ``arrange``, transposed.
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
                len(raw) * self.shape.groups,
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
    found = kernels_for(shape, device, "layer.cu", ("layer_forward", "layer_backward"))
    if found is None:
        return None
    forward, backward = found
    return LayerKernels(shape, forward, replace(backward, threads=shape.threads_backward))


class WholeLayers:
    """The convolutions that a kernel of ``layer.cu`` takes, and their weights as it reads them."""

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
                self.weights |= zip(numbers, weights.arranged(numbers), strict=True)
                back = weights.arranged(numbers, transposed=True)
                self.transposed |= zip(numbers, back, strict=True)
