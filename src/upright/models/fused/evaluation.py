"""A ResNet in evaluation mode with one kernel for each convolution, on a GPU.

Layer by layer, a narrow network spends its time on reading and writing activations: convolution,
norm, activation and sum each pass over memory. In evaluation mode a norm is an affine map, so all
of it fits into the convolution's own kernel. The search for x' and the evaluation of a grid are
made of such passes; an ascent on the pose needs the way back to the images too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.fused.weights import PADDED, Layers, Weights
from upright.models.resnet import SLOPE, ResNet

__all__ = ["FusedResNet", "can_fuse", "has_triton", "in_half_precision", "standard_images"]


def can_fuse(model: nn.Module) -> bool:
    """Whether a network can be run by these kernels: widths that a matrix unit takes, a GPU."""
    if not isinstance(model, ResNet):
        return False
    fits = all(width in (16, 32, 64, 128) for width in Layers(model).widths)
    fits = fits and model.stem.in_channels <= PADDED
    return fits and model.linear.weight.is_cuda and has_triton()


def in_half_precision(
    model: Callable[[Tensor], Tensor], precision: Literal["float16", "bfloat16"] = "float16"
) -> InHalfPrecision:
    """Run a model in half precision, for an evaluation; by the kernels here where it can be.

    Under 775 poses an image is often near a boundary, so rounding decides: ``float16`` has three
    bits more than ``bfloat16``, and a trained network does not need the latter's range.
    """
    return InHalfPrecision(model, precision)


class InHalfPrecision(nn.Module):
    """A model in half precision, as it is now."""

    def __init__(
        self, model: Callable[[Tensor], Tensor], precision: Literal["float16", "bfloat16"]
    ) -> None:
        super().__init__()
        self.training = False  # of itself: whether the model is in training mode is its own affair
        self.model, self.precision = model, precision
        self._dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[precision]
        fuses = isinstance(model, ResNet) and can_fuse(model)
        self._fused = FusedResNet(cast(ResNet, model), self._dtype).freeze() if fuses else None

    def forward(self, images: Tensor) -> Tensor:
        if self._fused is not None:
            return self._fused(images)
        with torch.autocast(images.device.type, self._dtype):
            return self.model(images)

    def get_extra_state(self) -> str:
        """Answers depend on the precision as on weights: one stored evaluation has one of both."""
        return self.precision

    def set_extra_state(self, state: str) -> None:
        if state != self.precision:
            raise ValueError(f"this model is in {self.precision}, and the state in {state}")


@dataclass(frozen=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    logits: Tensor


class FusedResNet:
    """Runs a ResNet in evaluation mode, in half precision; gives logits in float32.

    The weights are read from the network at each call, unless ``freeze`` was called; a frozen
    network is also recorded as a CUDA graph for each shape of images that it meets. Gradients reach
    the images, never the weights; they are computed in bfloat16 where the rest is float16, in which
    those of an image that is answered with confidence would be zero.
    """

    def __init__(
        self, model: ResNet, dtype: torch.dtype = torch.bfloat16, *, layers: Layers | None = None
    ) -> None:
        self.model, self.dtype = model, dtype
        self._layers = layers or Layers(model)
        self._climbing = torch.bfloat16 if dtype == torch.float16 else dtype
        self._frozen: dict[torch.dtype, Weights] = {}
        self._graphs: dict[torch.Size, _Graph] = {}
        self._pool: Any = None

    def freeze(self) -> FusedResNet:
        """Keep the weights as they are now, for a network that is no longer trained."""
        with torch.no_grad():
            for dtype in {self.dtype, self._climbing}:
                self._frozen[dtype] = self._layers.for_evaluation(dtype)
        return self

    def __call__(self, images: Tensor) -> Tensor:
        # The kernels count values in 32 bits.
        most = 2**30 // (images[0, 0].numel() * max(PADDED, self.model.norm.num_features))
        if len(images) > most:
            return torch.cat([self(part) for part in images.split(most)])
        if torch.is_grad_enabled() and images.requires_grad:
            return self._with_gradient(images)
        with torch.no_grad():
            weights = self._weights(self.dtype)
            if not self._frozen:
                return self._run(images, weights)
            shape = torch.Size((_round_up(len(images)), *images.shape[1:]))
            if shape not in self._graphs:
                self._graphs[shape] = self._record(images.new_zeros(shape).float(), weights)
            graph = self._graphs[shape]
            graph.images[: len(images)].copy_(images)
            graph.graph.replay()
            return graph.logits[: len(images)].clone()

    def _weights(self, dtype: torch.dtype) -> Weights:
        return self._frozen[dtype] if self._frozen else self._layers.for_evaluation(dtype)

    def _with_gradient(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            weights = self._weights(self._climbing)
        logits: Tensor = _Pass.apply(  # type: ignore[no-untyped-call]
            images, self._layers, weights, self._climbing
        )
        return logits

    def _run(self, images: Tensor, weights: Weights) -> Tensor:
        from upright.models.fused.head_kernels import averaged_logits

        standard = standard_images(self.model, images, self.dtype)
        features = _features(self._layers, weights, standard)
        return averaged_logits(features, self.model.linear.weight, self.model.linear.bias)[1]

    def _record(self, images: Tensor, weights: Weights) -> _Graph:
        """Record a pass: launching its kernels one by one would take as long as they run."""
        self._run(images, weights)  # chooses and compiles the kernels
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = self._run(images, weights)
        self._pool = graph.pool()
        return _Graph(graph, images, logits)


def standard_images(model: ResNet, images: Tensor, dtype: torch.dtype) -> Tensor:
    """Standardise images and lay them out for the kernels: N x H x W x 16."""
    from upright.models.fused.forward_kernels import standardise

    if images[0, 0].numel() <= 4096:
        least = model.standardise.least_deviation(images[0].numel())
        return standardise(images.float().contiguous(), dtype, padded=PADDED, least=least)
    padded = F.pad(model.standardise(images.float()), [0, 0, 0, 0, 0, PADDED - images.shape[1]])
    return padded.permute(0, 2, 3, 1).to(dtype).contiguous()


def _features(layers: Layers, weights: Weights, standard: Tensor) -> Tensor:
    """Give the last activations; a stage by one kernel where its images fit into its memory."""
    from upright.models.fused.deep import shape_of
    from upright.models.fused.stage import run_blocks, stage_kernel

    stages = {2 * stage.start + 1: 2 * stage.stop + 1 for stage in layers.stages}
    if 1 in stages and layers.widths[0] == PADDED:
        stages[0] = stages[1]
    raw = active = standard
    number = 0  # of the next convolution
    while number < len(layers.convolutions):
        shape = shape_of(active, stem=number == 0)
        kernel = stage_kernel(shape, active.device) if number in stages else None
        if kernel is not None:
            some = range(number, stages[number])
            raw, active = run_blocks(kernel, shape, active, raw, weights, some)
            number = some.stop
        elif number == 0:
            raw = active = _layer(layers, weights, 0, standard)[1]
            number = 1
        else:
            _, raw, active = _block(layers, weights, number // 2, raw, active)
            number += 2
    return active


def _forward(layers: Layers, weights: Weights, standard: Tensor) -> Iterator[Tensor]:
    """Give the activations after each convolution."""
    raw = active = _layer(layers, weights, 0, standard)[1]
    yield active
    for number in range(len(layers.blocks)):
        inner, raw, active = _block(layers, weights, number, raw, active)
        yield from (inner, active)


def _block(
    layers: Layers, weights: Weights, number: int, raw: Tensor, active: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the activations between a block's convolutions, its sums, and their activations."""
    shortcut = active if layers.blocks[number].activate_shortcut else raw
    inner = _layer(layers, weights, 2 * number + 1, active)[1]
    keeps_raw = number + 1 < len(layers.blocks)
    return inner, *_layer(
        layers, weights, 2 * number + 2, inner, shortcut=shortcut, keeps_raw=keeps_raw
    )


def _layer(
    layers: Layers, weights: Weights, number: int, source: Tensor, **more: Any
) -> tuple[Tensor, Tensor]:
    """A convolution with all that follows it: the sum before the norm, and the activations."""
    from upright.models.fused.forward_kernels import convolve

    convolution = layers.convolutions[number]
    return convolve(
        source,
        weights.kernels[number],
        weights.scales[number],
        weights.shifts[number],
        after=convolution.out_channels,
        stride=convolution.stride[0],
        slope=SLOPE,
        **more,
    )


class _Pass(torch.autograd.Function):
    """From images to logits, and back."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, layers: Layers, weights: Weights, dtype: torch.dtype
    ) -> Tensor:
        from upright.models.fused.head_kernels import averaged_logits

        images = images.detach().float().contiguous()
        ctx.images, ctx.layers, ctx.weights = images, layers, weights
        ctx.standard = standard_images(layers.model, images, dtype)
        ctx.active = list(_forward(layers, weights, ctx.standard))
        linear = layers.model.linear
        ctx.averages, logits = averaged_logits(ctx.active[-1], linear.weight, linear.bias)
        return logits

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        from upright.models.fused.head_kernels import gradient_of_averages

        weight = ctx.layers.model.linear.weight.detach()
        pooled, _, _ = gradient_of_averages(
            gradient.contiguous(), ctx.averages, weight, with_weights=False
        )
        standard = _backward(ctx.layers, ctx.weights, ctx.active, ctx.standard, pooled)
        return _to_images(ctx.layers.model, ctx.images, standard), None, None, None


def _to_images(model: ResNet, images: Tensor, gradient: Tensor) -> Tensor:
    from upright.models.fused.backward_kernels import standardise_backward

    if images[0, 0].numel() <= 4096:
        least = model.standardise.least_deviation(images[0].numel())
        return standardise_backward(images, gradient, least=least)
    with torch.enable_grad():
        source = images.detach().requires_grad_()
        standard = model.standardise(source)
    plain = gradient[..., : images.shape[1]].permute(0, 3, 1, 2).float()
    return torch.autograd.grad(standard, source, plain)[0]


def _backward(
    layers: Layers, weights: Weights, active: list[Tensor], standard: Tensor, gradient: Tensor
) -> Tensor:
    """From the gradient of the averaged features to that of the standardised images."""
    from upright.models.fused.backward_kernels import gradient_of_inputs, pooled_gradient

    def layer(number: int, gradient: Tensor, **more: Any) -> Tensor:
        return gradient_of_inputs(
            gradient,
            weights.kernels[number],
            active[number - 1],
            weights.scales[number - 1],
            stride=layers.convolutions[number].stride[0],
            slope=SLOPE,
            **more,
        )

    last = pooled_gradient(
        gradient, active[-1], weights.scales[-1], weights.shifts[-1], slope=SLOPE
    )
    for number, block in reversed(list(enumerate(layers.blocks))):
        inner = layer(2 * number + 2, last)
        last = layer(
            2 * number + 1,
            inner,
            shortcut=last,
            shortcut_is_active=block.activate_shortcut,
        )
    return gradient_of_inputs(last, weights.kernels[0], standard, slope=SLOPE)


def _round_up(count: int) -> int:
    """The next power of two or one and a half of one: few shapes to record, little to waste."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def has_triton() -> bool:
    """Whether kernels can be compiled here."""
    from torch.utils._triton import has_triton as found

    return found()
