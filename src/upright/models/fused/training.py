"""A ResNet's training pass, forward and backward, in few kernels, on a GPU.

A small batch is bound by the number of kernels, not by arithmetic. Here a convolution takes two
forward (the convolution with its shortcut and the sums of its channels; norm and leaky ReLU) and
three backward (the gradients of weights and of inputs; the norm's own), where layer by layer it
takes about twenty. Where ``training_layer.cu`` takes it, it is one forward and one backward.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from upright.models.fused.evaluation_layers import standard_images
from upright.models.fused.training_backward import BackwardPass, as_parameters
from upright.models.fused.training_layer import FusedLayers
from upright.models.fused.weight_layout import Layers, Weights
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
        self._side_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, images: Tensor) -> Tensor:
        layers = self.layers
        logits: Tensor = _Pass.apply(  # type: ignore[no-untyped-call]
            images,
            layers,
            self.dtype,
            self._side_stream,
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
        side_stream: torch.cuda.Stream | None,
        weight: Tensor,
        bias: Tensor,
        *_: Tensor,
    ) -> Tensor:
        from upright.models.fused.head_kernels import averaged_logits

        ctx.layers, ctx.weights, ctx.side_stream = layers, layers.for_training(dtype), side_stream
        ctx.sums = torch.zeros((2, sum(layers.widths)), device=images.device)
        standard = standard_images(layers.model, images, dtype)
        ctx.fused = FusedLayers(layers, ctx.weights, standard)
        ctx.active, ctx.raw = _forward(layers, ctx.weights, ctx.fused, standard, ctx.sums)
        _track(layers, ctx.raw, ctx.sums)
        ctx.linear = weight.detach()
        ctx.averages, logits = averaged_logits(ctx.active[-1], weight, bias)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        from upright.models.fused.head_kernels import gradient_of_averages

        layers: Layers = ctx.layers
        pooled, *linear = gradient_of_averages(gradient.contiguous(), ctx.averages, ctx.linear)
        back = BackwardPass(
            layers, ctx.weights, ctx.fused, ctx.active, ctx.raw, ctx.sums, ctx.side_stream
        )
        back.run(pooled)
        shift, scale = (row.split(layers.widths) for row in back.norms)
        kernels = as_parameters(layers, back.kernels)
        return None, None, None, None, *linear, *kernels, *scale, *shift


def _forward(
    layers: Layers, weights: Weights, fused: FusedLayers, standard: Tensor, sums: Tensor
) -> tuple[list[Tensor | None], list[Tensor]]:
    """What each convolution reads, and at last the features; and what each norm reads.

    A kernel of ``training_layer.cu`` makes what it convolves, and writes it where more reads it.
    """
    from upright.models.fused.convolution_kernels import convolve_and_sum
    from upright.models.fused.norm_kernels import activate

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
        same_shape = shortcut is None or shortcut.shape == raw[-1].shape
        if number in fused.kernels and same_shape:
            made, found = fused.kernels[number].forward(
                raw[-1],
                norm(number - 1),
                fused.weights[number],
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
    from upright.models.fused.norm_kernels import moments

    pixels = tuple(seen.numel() // seen.shape[3] for seen in raw)
    mean, variance = moments(sums, layers.counts(sums.device, pixels))
    share = cast(float, layers.norms[0].momentum)
    kept = [
        getattr(norm, name) for name in ("running_mean", "running_var") for norm in layers.norms
    ]
    found = [*mean.split(layers.widths), *variance.split(layers.widths)]
    torch._foreach_lerp_(kept, found, share)
