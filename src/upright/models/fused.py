"""A ResNet's forward pass in evaluation mode with one kernel for each convolution, on a GPU.

Layer by layer, a narrow network spends its time on reading and writing activations: convolution,
norm, activation and sum each pass over memory. In evaluation mode a norm is an affine map, so all
of it fits into the convolution's own kernel. The search for x' and the evaluation of a grid are
made of such passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.resnet import SLOPE, Block, ResNet

__all__ = ["FusedResNet", "can_fuse", "has_triton", "in_half_precision"]


def can_fuse(model: nn.Module) -> bool:
    """Whether a network can be run by ``FusedResNet``: widths that a matrix unit takes, a GPU."""
    if not isinstance(model, ResNet):
        return False
    widths = [cast(Block, block).conv2.out_channels for block in model.blocks]
    fits = all(width in (16, 32, 64, 128) for width in [model.stem.out_channels, *widths])
    return fits and model.stem.in_channels <= 16 and model.linear.weight.is_cuda and has_triton()


def in_half_precision(model: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Run a model in bfloat16, for an evaluation; by the kernels here where it can be."""
    if isinstance(model, ResNet) and can_fuse(model):
        return FusedResNet(model).freeze()

    def half(images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            return model(images)

    return half


@dataclass(frozen=True)
class _Weights:
    """A network's weights as the kernels read them, all in a few buffers."""

    kernels: list[Tensor]
    scales: list[Tensor]
    shifts: list[Tensor]


@dataclass(frozen=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    logits: Tensor


class FusedResNet:
    """Runs a ResNet in evaluation mode, in half precision; gives logits in float32.

    The weights are read from the network at each call, unless ``freeze`` was called; a frozen
    network is also recorded as a CUDA graph for each shape of images that it meets.
    """

    def __init__(self, model: ResNet, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model, self.dtype = model, dtype
        self._frozen: _Weights | None = None
        self._graphs: dict[torch.Size, _Graph] = {}
        self._pool: Any = None

    def freeze(self) -> FusedResNet:
        """Keep the weights as they are now, for a network that is no longer trained."""
        self._frozen = self._read()
        return self

    def __call__(self, images: Tensor) -> Tensor:
        # The kernels count values in 32 bits.
        most = 2**30 // (images[0, 0].numel() * max(16, self.model.norm.num_features))
        if len(images) > most:
            return torch.cat([self(part) for part in images.split(most)])
        with torch.no_grad():
            if self._frozen is None:
                return self._run(images, self._read())
            shape = torch.Size((_round_up(len(images)), *images.shape[1:]))
            if shape not in self._graphs:
                self._graphs[shape] = self._record(images.new_zeros(shape).float(), self._frozen)
            graph = self._graphs[shape]
            graph.images[: len(images)].copy_(images)
            graph.graph.replay()
            return graph.logits[: len(images)].clone()

    def _run(self, images: Tensor, weights: _Weights) -> Tensor:
        features = self._blocks(self._stem(images, weights), weights)
        pooled = features.mean((1, 2), dtype=torch.float32)
        return F.linear(pooled, self.model.linear.weight, self.model.linear.bias)

    def _record(self, images: Tensor, weights: _Weights) -> _Graph:
        """Record a pass: launching its kernels one by one would take as long as they run."""
        self._run(images, weights)  # chooses and compiles the kernels
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = self._run(images, weights)
        self._pool = graph.pool()
        return _Graph(graph, images, logits)

    def _stem(self, images: Tensor, weights: _Weights) -> Tensor:
        from upright.models.fused_kernels import convolve, standardise

        least = self.model.standardise.least_deviation(images[0].numel())
        # A matrix unit takes at least 16 channels: the missing ones are zeros.
        if images[0, 0].numel() <= 4096:
            standard = standardise(images.float().contiguous(), self.dtype, padded=16, least=least)
        else:
            padding = [0, 0, 0, 0, 0, 16 - images.shape[1]]
            padded = F.pad(self.model.standardise(images.float()), padding)
            standard = padded.permute(0, 2, 3, 1).to(self.dtype).contiguous()
        return convolve(
            standard,
            weights.kernels[0],
            weights.scales[0],
            weights.shifts[0],
            after=self.model.stem.out_channels,
            slope=SLOPE,
        )[1]

    def _blocks(self, active: Tensor, weights: _Weights) -> Tensor:
        from upright.models.fused_kernels import convolve

        raw = active
        for number, module in enumerate(self.model.blocks):
            block, layer = cast(Block, module), 2 * number + 1
            shortcut = active if block.activate_shortcut else raw
            _, inner = convolve(
                active,
                weights.kernels[layer],
                weights.scales[layer],
                weights.shifts[layer],
                after=block.conv1.out_channels,
                stride=block.stride,
                slope=SLOPE,
            )
            raw, active = convolve(
                inner,
                weights.kernels[layer + 1],
                weights.scales[layer + 1],
                weights.shifts[layer + 1],
                after=block.conv2.out_channels,
                slope=SLOPE,
                shortcut=shortcut,
                keeps_raw=number + 1 < len(self.model.blocks),
            )
        return active

    def _read(self) -> _Weights:
        """Gather the weights in few operations: in training this happens at every step."""
        blocks = [cast(Block, block) for block in self.model.blocks]
        convolutions = [conv for block in blocks for conv in (block.conv1, block.conv2)]
        norms = [norm for block in blocks for norm in (block.norm1, block.norm2)]
        stem = F.pad(self.model.stem.weight, [0, 0, 0, 0, 0, 16 - self.model.stem.in_channels])
        kernels = [stem, *(conv.weight for conv in convolutions)]
        flat = torch.cat([kernel.permute(0, 2, 3, 1).reshape(-1) for kernel in kernels])
        sizes = [kernel.numel() for kernel in kernels]
        # A convolution is followed by the norm of the next one.
        following = [*norms, self.model.norm]
        scale, shift = _affine(following)
        widths = [norm.num_features for norm in following]
        return _Weights(
            list(flat.to(self.dtype).split(sizes)),
            list(scale.split(widths)),
            list(shift.split(widths)),
        )


def _round_up(count: int) -> int:
    """The next power of two or one and a half of one: few shapes to record, little to waste."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def _affine(norms: list[nn.BatchNorm2d]) -> tuple[Tensor, Tensor]:
    """Give the factors and offsets of all norms in evaluation mode, one after another."""
    weight, bias, mean, variance = (
        torch.cat([cast(Tensor, getattr(norm, name)) for norm in norms])
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale = weight * torch.rsqrt(variance + norms[0].eps)
    return scale, bias - mean * scale


def has_triton() -> bool:
    """Whether kernels can be compiled here."""
    from torch.utils._triton import has_triton as found

    return found()
