"""A ResNet's weights as the kernels read them, gathered in few operations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.fused.warps import arrange
from upright.models.resnet import Block, ResNet

__all__ = ["PADDED", "Layers", "Weights"]

PADDED = 16
"""Channels of the standardised images: a matrix unit takes at least so many."""


@dataclass(frozen=True)
class Weights:
    """Those of all convolutions, one after another, each with the norm that follows it."""

    all_kernels: Tensor
    """after x 3 x 3 x before each, in half precision."""
    all_scales: Tensor
    all_shifts: Tensor
    kernel_sizes: list[int]
    widths: list[int]

    @cached_property
    def kernels(self) -> list[Tensor]:
        return list(self.all_kernels.split(self.kernel_sizes))

    @cached_property
    def scales(self) -> list[Tensor]:
        return list(self.all_scales.split(self.widths))

    @cached_property
    def shifts(self) -> list[Tensor]:
        return list(self.all_shifts.split(self.widths))

    def of(self, convolutions: range) -> tuple[Tensor, Tensor, Tensor]:
        """Kernels, scales and shifts of some convolutions in a row."""
        first, last = convolutions.start, convolutions.stop
        kernels = slice(sum(self.kernel_sizes[:first]), sum(self.kernel_sizes[:last]))
        norms = slice(sum(self.widths[:first]), sum(self.widths[:last]))
        return self.all_kernels[kernels], self.all_scales[norms], self.all_shifts[norms]

    def arranged(self, convolutions: range, *, transposed: bool = False) -> Tensor:
        """Kernels of convolutions of one shape as ``arrange`` lays them out."""
        kernels, channels = self.of(convolutions)[0], self.widths[convolutions.start]
        return arrange(kernels, channels, transposed=transposed)


class Layers:
    """The layers of a ResNet in the order of its forward pass."""

    def __init__(self, model: ResNet) -> None:
        self.model = model
        self.blocks = [cast(Block, block) for block in model.blocks]
        self.convolutions = [
            model.stem,
            *(conv for block in self.blocks for conv in (block.conv1, block.conv2)),
        ]
        inner = (norm for block in self.blocks for norm in (block.norm1, block.norm2))
        self.norms: list[nn.BatchNorm2d] = [*inner, model.norm]
        self.widths = [norm.num_features for norm in self.norms]
        self._counts: dict[tuple[torch.device, tuple[int, ...]], Tensor] = {}

    @cached_property
    def kernel_sizes(self) -> list[int]:
        return [9 * conv.out_channels * _padded(conv.in_channels) for conv in self.convolutions]

    @cached_property
    def stages(self) -> list[range]:
        """Blocks in a row that leave the shape of what goes through them as it is."""
        even = [block.stride == 1 and not block.missing for block in self.blocks]
        starts = [n for n, same in enumerate(even) if same and not (n and even[n - 1])]
        ends = [n + 1 for n, same in enumerate(even) if same and even[n + 1 : n + 2] != [True]]
        return [range(*ends_of_run) for ends_of_run in zip(starts, ends, strict=True)]

    @cached_property
    def runs(self) -> dict[int, range]:
        """Convolutions of stages, by the first; with the network's first, where its shape fits."""
        runs = {n.start * 2 + 1: range(n.start * 2 + 1, n.stop * 2 + 1) for n in self.stages}
        if 1 in runs and self.widths[0] == PADDED:
            runs[0] = range(runs[1].stop)
        return runs

    def kernels(self, dtype: torch.dtype) -> Tensor:
        """All kernels in half precision, as the network has them now."""
        stem = self.model.stem
        padded = F.pad(stem.weight, [0, 0, 0, 0, 0, PADDED - stem.in_channels])
        each = [padded, *(conv.weight for conv in self.convolutions[1:])]
        flat = torch.cat([kernel.permute(0, 2, 3, 1).reshape(-1) for kernel in each])
        return flat.to(dtype)

    def of_norms(self, name: str) -> Tensor:
        """One kind of tensor of all norms, one after another."""
        return torch.cat([cast(Tensor, getattr(norm, name)) for norm in self.norms])

    def counts(self, device: torch.device, pixels: tuple[int, ...]) -> Tensor:
        """For each channel of each norm, over how many pixels of the batch it goes."""
        if (device, pixels) not in self._counts:
            each = torch.tensor(pixels, dtype=torch.float32)
            counts = each.repeat_interleave(torch.tensor(self.widths)).to(device)
            self._counts[device, pixels] = counts
        return self._counts[device, pixels]

    def for_training(self, dtype: torch.dtype) -> Weights:
        """Norms as they are: their factors and offsets."""
        scale, shift = self.of_norms("weight"), self.of_norms("bias")
        return self._weights(dtype, scale, shift)

    def for_evaluation(self, dtype: torch.dtype) -> Weights:
        """Norms in evaluation mode, as affine maps."""
        deviation = torch.rsqrt(self.of_norms("running_var") + self.norms[0].eps)
        scale = self.of_norms("weight") * deviation
        return self._weights(
            dtype, scale, self.of_norms("bias") - self.of_norms("running_mean") * scale
        )

    def _weights(self, dtype: torch.dtype, scale: Tensor, shift: Tensor) -> Weights:
        return Weights(self.kernels(dtype), scale, shift, self.kernel_sizes, self.widths)


def _padded(channels: int) -> int:
    return max(PADDED, channels)
