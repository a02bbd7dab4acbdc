"""A ResNet's training pass, forward and backward, in few kernels, on a GPU.

A small batch is bound by the number of kernels, not by arithmetic. Here a convolution takes two on
the way forward (the convolution with its shortcut and the sums of its channels; norm and leaky
ReLU) and three on the way back (the gradients of weights and of inputs; the norm's own), where
layer by layer it takes about twenty. Where ``layer.cu`` takes it, it is one each way.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from upright.models.fused.layered import standard_images
from upright.models.fused.weights import PADDED, Layers, Weights
from upright.models.resnet import SLOPE, ResNet

__all__ = ["FusedTraining"]


class FusedTraining:
    """Runs a ResNet in training mode, in half precision: images to logits in float32.

    It updates the running statistics of the norms as the network does, and gives gradients to its
    parameters; the images get none. Who runs it in evaluation mode too can share its ``layers``.
    """

    def __init__(self, model: ResNet, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model, self.dtype = model, dtype
        self.layers = Layers(model)
        device = model.linear.weight.device
        self._aside = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, images: Tensor) -> Tensor:
        layers = self.layers
        logits: Tensor = _Pass.apply(  # type: ignore[no-untyped-call]
            images,
            layers,
            self.dtype,
            self._aside,
            self.model.linear.weight,
            self.model.linear.bias,
            *(conv.weight for conv in layers.convolutions),
            *(norm.weight for norm in layers.norms),
            *(norm.bias for norm in layers.norms),
        )
        return logits


class _Pass(torch.autograd.Function):
    """From images to logits, and back to the parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        layers: Layers,
        dtype: torch.dtype,
        aside: torch.cuda.Stream | None,
        weight: Tensor,
        bias: Tensor,
        *_: Tensor,
    ) -> Tensor:
        from upright.models.fused.head_kernels import averaged_logits

        ctx.layers, ctx.weights, ctx.aside = layers, layers.for_training(dtype), aside
        ctx.sums = torch.zeros((2, sum(layers.widths)), device=images.device)
        standard = standard_images(layers.model, images, dtype)
        ctx.whole = _WholeLayers(layers, ctx.weights, standard)
        ctx.active, ctx.raw = _forward(layers, ctx.weights, ctx.whole, standard, ctx.sums)
        _track(layers, ctx.raw, ctx.sums)
        ctx.linear = weight.detach()
        ctx.averages, logits = averaged_logits(ctx.active[-1], weight, bias)
        return logits

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        from upright.models.fused.head_kernels import gradient_of_averages

        layers: Layers = ctx.layers
        pooled, *linear = gradient_of_averages(gradient.contiguous(), ctx.averages, ctx.linear)
        back = _Backward(layers, ctx.weights, ctx.whole, ctx.active, ctx.raw, ctx.sums, ctx.aside)
        back.run(pooled)
        shift, scale = (row.split(layers.widths) for row in back.norms)
        kernels = _as_parameters(layers, back.kernels)
        return None, None, None, None, *linear, *kernels, *scale, *shift


class _WholeLayers:
    """The convolutions that a kernel of ``layer.cu`` takes, and their weights as it reads them."""

    def __init__(self, layers: Layers, weights: Weights, standard: Tensor) -> None:
        from upright.models.fused.layer import LayerKernels, LayerShape, layer_kernels

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


def _forward(
    layers: Layers, weights: Weights, whole: _WholeLayers, standard: Tensor, sums: Tensor
) -> tuple[list[Tensor | None], list[Tensor]]:
    """What each convolution reads, and at last the features; and what each norm reads.

    A convolution of ``layer.cu`` reads what a norm gives, which is written where more reads it.
    """
    from upright.models.fused.forward_kernels import activate, convolve_and_sum

    of_layer = sums.split(layers.widths, 1)
    active, raw = list[Tensor | None]([standard]), list[Tensor]()

    def norm(number: int) -> tuple[Tensor, Tensor, Tensor]:
        return of_layer[number], weights.scales[number], weights.shifts[number]

    def activated() -> Tensor:
        number = len(raw) - 1
        epsilon = layers.norms[number].eps
        return activate(raw[-1], *norm(number), slope=SLOPE, epsilon=epsilon)

    def layer(shortcut: Tensor | None = None, *, keep: bool = False) -> None:
        number = len(raw)
        whole_shortcut = shortcut is None or shortcut.shape == raw[-1].shape
        if number in whole.kernels and whole_shortcut:
            made, found = whole.kernels[number].forward(
                raw[-1],
                norm(number - 1),
                whole.weights[number],
                of_layer[number],
                shortcut,
                keep=keep,
            )
            active.append(made)
            raw.append(found)
            return
        if raw:
            active.append(activated())
        convolution = layers.convolutions[number]
        raw.append(
            convolve_and_sum(
                cast(Tensor, active[-1]),
                weights.kernels[number],
                of_layer[number],
                after=convolution.out_channels,
                stride=convolution.stride[0],
                shortcut=shortcut,
            )
        )

    layer()
    for block in layers.blocks:
        before = raw[-1]
        layer(keep=block.activate_shortcut)
        layer(active[-1] if block.activate_shortcut else before)
    active.append(activated())
    return active, raw


def _track(layers: Layers, raw: list[Tensor], sums: Tensor) -> None:
    """Update the running statistics."""
    from upright.models.fused.forward_kernels import moments

    pixels = tuple(seen.numel() // seen.shape[3] for seen in raw)
    mean, variance = moments(sums, layers.counts(sums.device, pixels))
    share = cast(float, layers.norms[0].momentum)
    kept = [
        getattr(norm, name) for name in ("running_mean", "running_var") for norm in layers.norms
    ]
    found = [*mean.split(layers.widths), *variance.split(layers.widths)]
    torch._foreach_lerp_(kept, found, share)


class _Backward:
    """From the gradient of the averaged features to those of all kernels and norms."""

    def __init__(
        self,
        layers: Layers,
        weights: Weights,
        whole: _WholeLayers,
        active: list[Tensor | None],
        raw: list[Tensor],
        sums: Tensor,
        aside: torch.cuda.Stream | None,
    ) -> None:
        self.layers, self.weights, self.active, self.raw = layers, weights, active, raw
        self.whole = whole
        self.aside, self.kept = aside, list[Tensor]()
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
            stream, found = self.through(number + 1, found, skip)
            shortcut = stream if block.activate_shortcut else None
            _, found = self.through(number, found, None, shortcut, keep=False)
            skip = None if block.activate_shortcut else stream
        self.of_weights(0, self.through_norm(0, found, skip))
        if self.aside is not None:
            torch.cuda.current_stream().wait_stream(self.aside)

    def through(
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
        kernels = self.whole.kernels.get(number)
        if kernels is None or not kernels.takes(skip):
            stream = self.through_norm(number, found, skip)
            return stream, self.to_norm(number, stream, active_shortcut)
        scales, shifts = self.weights.scales, self.weights.shifts
        return kernels.backward(
            found,
            self.raw[number],
            (self.sums[number], self.norm_sums[number], scales[number]),
            skip,
            self.whole.transposed[number],
            self.raw[number - 1],
            (self.sums[number - 1], scales[number - 1], shifts[number - 1]),
            active_shortcut,
            self.norm_sums[number - 1],
            self.kernels[number],
            keep=keep,
        )

    def from_averages(self, gradient: Tensor) -> Tensor:
        """Through the average over pixels and the last leaky ReLU."""
        from upright.models.fused.backward_kernels import pooled_gradient

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
        from upright.models.fused.backward_kernels import gradient_before_norm

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
        from upright.models.fused.backward_kernels import join

        return join(
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
        from upright.models.fused.forward_kernels import activate

        known = self.active[number]
        if known is not None:
            return known
        before = number - 1
        scale, shift = self.weights.scales[before], self.weights.shifts[before]
        norm = self.sums[before], scale, shift
        return activate(self.raw[before], *norm, slope=SLOPE, epsilon=self.epsilon)

    def of_weights(self, number: int, gradient: Tensor) -> None:
        """Sum the gradient of weights, for which nothing waits: beside the way back."""
        from upright.models.fused.backward_kernels import gradient_of_weights

        stride = self.layers.convolutions[number].stride[0]
        source, out = self.source(number), self.kernels[number]
        if self.aside is None:
            gradient_of_weights(source, gradient, out, stride=stride)
            return
        # The memory must not be given away before the other stream has read it.
        self.kept += [source, gradient]
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            gradient_of_weights(source, gradient, out, stride=stride)


def _as_parameters(layers: Layers, kernels: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients of kernels in the shape of the parameters; without a copy but for the stem's."""
    found = []
    for convolution, kernel in zip(layers.convolutions, kernels, strict=True):
        padded = max(PADDED, convolution.in_channels)
        laid_out = kernel.view(convolution.out_channels, 3, 3, padded).permute(0, 3, 1, 2)
        found.append(laid_out[:, : convolution.in_channels])
    return found
