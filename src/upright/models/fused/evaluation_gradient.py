"""A ResNet in evaluation mode with the gradient of its images, for ascents on the pose.

The forward pass keeps what the backward pass needs: of a stage that one kernel takes, the signs of
its activations; of other layers, the activations themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from upright.models.fused.differentiable_stage import DifferentiableStage
from upright.models.fused.evaluation_layers import layer, residual_block, standard_images
from upright.models.fused.pipelined_stage import stage_shape_of
from upright.models.fused.weight_layout import Layers, Weights
from upright.models.resnet import SLOPE, ResNet

__all__ = ["differentiable_logits"]


def differentiable_logits(images: Tensor, layers: Layers, weights: Weights) -> Tensor:
    """Give logits in float32, by convolutions in the weights' precision.

    Gradients reach the images alone.
    """
    return cast(Tensor, _Pass.apply(images, layers, weights))  # type: ignore[no-untyped-call]


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, layers: Layers, weights: Weights) -> Tensor:
        from upright.models.fused.head_kernels import averaged_logits

        images = images.detach().float().contiguous()
        ctx.images, ctx.network = images, _Network(layers, weights)
        standard = standard_images(layers.model, images, weights.all_kernels.dtype)
        ctx.steps, ctx.active = _forward(ctx.network, standard)
        linear = layers.model.linear
        ctx.averages, logits = averaged_logits(ctx.active, linear.weight, linear.bias)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        from upright.models.fused.head_kernels import gradient_of_averages, pooled_gradient

        network: _Network = ctx.network
        linear = network.layers.model.linear.weight.detach()
        averages, _, _ = gradient_of_averages(
            gradient.contiguous(), ctx.averages, linear, with_weights=False
        )
        scale, shift = network.weights.scales[-1], network.weights.shifts[-1]
        found = pooled_gradient(averages, ctx.active, scale, shift, slope=SLOPE)
        for step in reversed(ctx.steps):
            found = step.backward(network, found)
        return _to_images(network.layers.model, ctx.images, found), None, None


@dataclass(frozen=True)
class _Network:
    layers: Layers
    weights: Weights

    def layer_backward(self, number: int, gradient: Tensor, active: Tensor, **more: Any) -> Tensor:
        """From the gradient of a convolution's output, through the norm before it."""
        from upright.models.fused.convolution_backward_kernels import gradient_of_inputs

        return gradient_of_inputs(
            gradient,
            self.weights.kernels[number],
            active,
            self.weights.scales[number - 1] if number else None,
            stride=self.layers.convolutions[number].stride[0],
            slope=SLOPE,
            **more,
        )


class _Step(Protocol):
    """A part of the forward pass, and what it kept."""

    def backward(self, network: _Network, gradient: Tensor) -> Tensor:
        """From the gradient of what left it, before the norm, to that of what entered."""


@dataclass(frozen=True)
class _Stem:
    standard: Tensor

    def backward(self, network: _Network, gradient: Tensor) -> Tensor:
        return network.layer_backward(0, gradient, self.standard)


@dataclass(frozen=True)
class _ResidualBlock:
    number: int
    active: Tensor
    """What entered it."""
    inner: Tensor
    """The activations between its convolutions."""

    def backward(self, network: _Network, gradient: Tensor) -> Tensor:
        first = 2 * self.number + 1
        return network.layer_backward(
            first,
            network.layer_backward(first + 1, gradient, self.inner),
            self.active,
            shortcut=gradient,
            shortcut_is_active=network.layers.blocks[self.number].activate_shortcut,
        )


@dataclass(frozen=True)
class _Stage:
    kernels: DifferentiableStage
    convolutions: range
    signs: Tensor

    def backward(self, network: _Network, gradient: Tensor) -> Tensor:
        first = network.layers.blocks[self.convolutions.start // 2]
        return self.kernels.backward(
            gradient,
            self.signs,
            network.weights,
            self.convolutions,
            active_shortcut=first.activate_shortcut,
        )


def _forward(network: _Network, standard: Tensor) -> tuple[list[_Step], Tensor]:
    """Give the steps of the forward pass, and the last activations."""
    layers, weights = network.layers, network.weights
    steps = list[_Step]()
    raw = active = standard
    number = 0  # of the next convolution
    while number < len(layers.convolutions):
        kernels = _kernels_at(layers, number, active)
        if kernels is not None:
            some = layers.runs[number]
            output = kernels.forward(active, raw, weights, some)
            steps.append(_Stage(kernels, some, output.signs))
            raw, active, number = output.raw, output.active, some.stop
        elif number == 0:
            steps.append(_Stem(standard))
            raw = active = layer(layers, weights, 0, standard)[1]
            number = 1
        else:
            entered = active
            inner, raw, active = residual_block(layers, weights, number // 2, raw, active)
            steps.append(_ResidualBlock(number // 2, entered, inner))
            number += 2
    return steps, active


def _kernels_at(layers: Layers, number: int, active: Tensor) -> DifferentiableStage | None:
    """The kernels that take the stage that begins with a convolution, where there are such."""
    from upright.models.fused.differentiable_stage import differentiable_stage

    if number not in layers.runs:
        return None
    return differentiable_stage(stage_shape_of(active, stem=number == 0, signs=True), active.device)


def _to_images(model: ResNet, images: Tensor, gradient: Tensor) -> Tensor:
    from upright.models.fused.standardise_kernels import MOST_PIXELS, standardise_backward

    if images[0, 0].numel() <= MOST_PIXELS:
        least = model.standardise.least_deviation(images[0].numel())
        return standardise_backward(images, gradient, least=least)
    with torch.enable_grad():
        source = images.detach().requires_grad_()
        standard = model.standardise(source)
    plain = gradient[..., : images.shape[1]].permute(0, 3, 1, 2).float()
    return torch.autograd.grad(standard, source, plain)[0]
