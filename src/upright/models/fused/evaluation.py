"""A ResNet in evaluation mode with one kernel for each convolution, or each stage, on a GPU.

Layer by layer, a narrow network spends its time on reading and writing activations: convolution,
norm, activation and sum each pass over memory. In evaluation mode a norm is an affine map, so all
of it fits into the convolution's own kernel; and where a stage's activations fit into shared
memory, one kernel takes all its convolutions. The search for x' and the evaluation of a grid are
made of such passes; an ascent on the pose needs the gradient of the images, too
(``evaluation_gradient.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from upright.models.fused.evaluation_gradient import differentiable_logits
from upright.models.fused.evaluation_layers import layer, residual_block, standard_images
from upright.models.fused.weight_layout import PADDED, Layers, Weights
from upright.models.resnet import ResNet
from upright.triton_support import has_triton

__all__ = ["FusedResNet", "can_fuse"]


def can_fuse(model: nn.Module) -> bool:
    """Whether a network can be run by these kernels: widths that tensor cores take, a GPU."""
    if not isinstance(model, ResNet) or model.blurs:
        return False
    fits = all(width in (16, 32, 64, 128) for width in Layers(model).widths)
    fits = fits and model.stem.in_channels <= PADDED
    return fits and model.linear.weight.is_cuda and has_triton()


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
        self._stream: torch.cuda.Stream | None = None

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
        return differentiable_logits(images, self._layers, weights)

    def _run(self, images: Tensor, weights: Weights) -> Tensor:
        from upright.models.fused.head_kernels import averaged_logits

        standard = standard_images(self.model, images, self.dtype)
        features = _features(self._layers, weights, standard)
        return averaged_logits(features, self.model.linear.weight, self.model.linear.bias)[1]

    def _record(self, images: Tensor, weights: Weights) -> _Graph:
        """Record a pass: launching its kernels one by one would take as long as they run.

        On a stream of the images' device: PyTorch's own for recording is on the first device that
        was asked for one, and there nothing of the pass would be seen.
        """
        self._run(images, weights)  # chooses and compiles the kernels
        self._stream = self._stream or torch.cuda.Stream(images.device)
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device_of(images),
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
        ):
            logits = self._run(images, weights)
        self._pool = graph.pool()
        return _Graph(graph, images, logits)


def _features(layers: Layers, weights: Weights, standard: Tensor) -> Tensor:
    """Give the last activations; a stage by one kernel where its images fit into its memory."""
    from upright.models.fused.pipelined_stage import stage_shape_of
    from upright.models.fused.stage import run_stage, stage_kernel

    raw = active = standard
    number = 0  # of the next convolution
    while number < len(layers.convolutions):
        shape = stage_shape_of(active, stem=number == 0)
        kernel = stage_kernel(shape, active.device) if number in layers.runs else None
        if kernel is not None:
            some = layers.runs[number]
            raw, active = run_stage(kernel, shape, active, raw, weights, some)
            number = some.stop
        elif number == 0:
            raw = active = layer(layers, weights, 0, standard)[1]
            number = 1
        else:
            _, raw, active = residual_block(layers, weights, number // 2, raw, active)
            number += 2
    return active


def _round_up(count: int) -> int:
    """The next power of two or one and a half of one: few shapes to record, little to waste."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power
