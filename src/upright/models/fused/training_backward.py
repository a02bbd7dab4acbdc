"""A ResNet's backward pass in training mode: from the averaged features to the parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from upright.models.fused.training_layer import FusedLayers
from upright.models.fused.weight_layout import PADDED, Layers, Weights
from upright.models.resnet import SLOPE

__all__ = ["BackwardPass", "as_parameters"]


class BackwardPass:
    """From the gradient of the averaged features to those of all kernels and norms."""

    def __init__(
        self,
        layers: Layers,
        weights: Weights,
        fused: FusedLayers,
        active: list[Tensor | None],
        raw: list[Tensor],
        sums: Tensor,
        side_stream: torch.cuda.Stream | None,
    ) -> None:
        self.layers, self.weights, self.active, self.raw = layers, weights, active, raw
        self.fused = fused
        self.side_stream, self.kept = side_stream, list[Tensor]()
        kernel_values = sum(layers.kernel_sizes)
        zeros = torch.zeros(kernel_values + sums.numel(), device=sums.device)
        self.kernels = zeros[:kernel_values].split(layers.kernel_sizes)
        self.norms = zeros[kernel_values:].view_as(sums)
        self.sums = sums.split(layers.widths, 1)
        self.norm_sums = self.norms.split(layers.widths, 1)
        self.epsilon = layers.norms[0].eps

    def run(self, gradient: Tensor) -> None:
        found, skip = self.from_averages(gradient), None
        for block_number, block in reversed(list(enumerate(self.layers.blocks))):
            number = 2 * block_number + 1
            residual, found = self.through_layer(number + 1, found, skip)
            shortcut = residual if block.activate_shortcut else None
            _, found = self.through_layer(number, found, None, shortcut, keep=False)
            skip = None if block.activate_shortcut else residual
        self.of_weights(0, self.through_norm(0, found, skip))
        if self.side_stream is not None:
            torch.cuda.current_stream().wait_stream(self.side_stream)

    def through_layer(
        self,
        number: int,
        found: Tensor,
        skip: Tensor | None,
        active_shortcut: Tensor | None = None,
        *,
        keep: bool = True,
    ) -> tuple[Tensor | None, Tensor]:
        """Through the norm after a convolution, the convolution, and the ReLU before it.

        Gives the gradient of the convolution's output, to which ``skip`` was added, if it is to be
        kept, and that of what the norm before it gave.
        """
        kernels = self.fused.kernels.get(number)
        if kernels is None or not kernels.takes(skip):
            residual = self.through_norm(number, found, skip)
            return residual, self.to_norm(number, residual, active_shortcut)
        scales, shifts = self.weights.scales, self.weights.shifts
        return kernels.backward(
            found,
            self.raw[number],
            (self.sums[number], self.norm_sums[number], scales[number]),
            skip,
            self.fused.transposed[number],
            self.raw[number - 1],
            (self.sums[number - 1], scales[number - 1], shifts[number - 1]),
            active_shortcut,
            self.norm_sums[number - 1],
            self.kernels[number],
            keep=keep,
        )

    def from_averages(self, gradient: Tensor) -> Tensor:
        """Through the average over pixels and the last leaky ReLU."""
        from upright.models.fused.head_kernels import pooled_gradient

        return pooled_gradient(
            gradient,
            self.raw[-1],
            self.weights.scales[-1],
            self.weights.shifts[-1],
            slope=SLOPE,
            epsilon=self.epsilon,
            sums=self.sums[-1],
            gradient_sums=self.norm_sums[-1],
        )

    def to_norm(
        self, number: int, gradient: Tensor, active_shortcut: Tensor | None = None
    ) -> Tensor:
        """Through convolution ``number`` and the leaky ReLU before it."""
        from upright.models.fused.convolution_backward_kernels import gradient_before_norm

        self.of_weights(number, gradient)
        return gradient_before_norm(
            gradient,
            self.weights.kernels[number],
            self.raw[number - 1],
            self.sums[number - 1],
            self.weights.scales[number - 1],
            self.weights.shifts[number - 1],
            self.norm_sums[number - 1],
            stride=self.layers.convolutions[number].stride[0],
            slope=SLOPE,
            epsilon=self.epsilon,
            active_shortcut=active_shortcut,
        )

    def through_norm(self, number: int, gradient: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Through the norm after convolution ``number``, with the gradient of a shortcut."""
        from upright.models.fused.norm_kernels import norm_backward

        return norm_backward(
            gradient,
            self.raw[number],
            self.sums[number],
            self.norm_sums[number],
            self.weights.scales[number],
            epsilon=self.epsilon,
            shortcut=shortcut,
        )

    def source(self, number: int) -> Tensor:
        """What convolution ``number`` read."""
        from upright.models.fused.norm_kernels import activate

        known = self.active[number]
        if known is not None:
            return known
        before = number - 1
        scale, shift = self.weights.scales[before], self.weights.shifts[before]
        norm = self.sums[before], scale, shift
        return activate(self.raw[before], *norm, slope=SLOPE, epsilon=self.epsilon)

    def of_weights(self, number: int, gradient: Tensor) -> None:
        """Sum the gradient of weights, for which nothing waits: on a stream beside the rest."""
        from upright.models.fused.convolution_backward_kernels import gradient_of_weights

        stride = self.layers.convolutions[number].stride[0]
        source, out = self.source(number), self.kernels[number]
        if self.side_stream is None:
            gradient_of_weights(source, gradient, out, stride=stride)
            return
        # The memory must not be given away before the other stream has read it.
        self.kept += [source, gradient]
        self.side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side_stream):
            gradient_of_weights(source, gradient, out, stride=stride)


def as_parameters(layers: Layers, kernels: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients of kernels in the shape of the parameters; without a copy but for the stem's."""
    found = []
    for convolution, kernel in zip(layers.convolutions, kernels, strict=True):
        padded = max(PADDED, convolution.in_channels)
        laid_out = kernel.view(convolution.out_channels, 3, 3, padded).permute(0, 3, 1, 2)
        found.append(laid_out[:, : convolution.in_channels])
    return found
