"""A ResNet's weights as the kernels read them, gathered in few operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.fused.fragments import as_fragments
from upright.models.fused.warp_tile import CUDA_CHANNELS
from upright.models.resnet import Block, ResNet

__all__ = ["PADDED", "Layers", "Weights"]

PADDED = 16
"""Channels of the standardised images: a tensor core takes at least so many."""

T = TypeVar("T")


@dataclass(frozen=True)
class Weights:
    """The weights of all convolutions, one after another, each with the norm that follows it."""

    all_kernels: Tensor
    """after x 3 x 3 x before each, in half precision."""
    all_fragments: Tensor
    """Those of ``square`` again, by ``as_fragments``: a row as they are, and one transposed."""
    all_scales: Tensor
    all_shifts: Tensor
    kernel_sizes: list[int]
    widths: list[int]
    square: list[int]
    """Numbers of the convolutions that CUDA kernels can take."""

    @cached_property
    def kernels(self) -> list[Tensor]:
        return list(self.all_kernels.split(self.kernel_sizes))

    @cached_property
    def scales(self) -> list[Tensor]:
        return list(self.all_scales.split(self.widths))

    @cached_property
    def shifts(self) -> list[Tensor]:
        return list(self.all_shifts.split(self.widths))

    def norms(self, convolutions: range) -> tuple[Tensor, Tensor]:
        """Scales and shifts of the norms that follow some convolutions in a row."""
        first, last = convolutions.start, convolutions.stop
        norms = slice(sum(self.widths[:first]), sum(self.widths[:last]))
        return self.all_scales[norms], self.all_shifts[norms]

    def fragments(self, convolutions: range, *, transposed: bool = False) -> Tensor:
        """Kernels of some convolutions in a row, all of them ``square`` and of one shape, as
        ``as_fragments`` lays them out: one row for each."""
        before = (number for number in self.square if number < convolutions.start)
        start = sum(self.kernel_sizes[number] for number in before)
        stop = start + sum(self.kernel_sizes[number] for number in convolutions)
        return self.all_fragments[int(transposed), start:stop].view(len(convolutions), -1)


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
        self._places: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._held: dict[Any, Any] | None = None

    @cached_property
    def kernel_sizes(self) -> list[int]:
        return [9 * conv.out_channels * _padded(conv.in_channels) for conv in self.convolutions]

    @cached_property
    def square(self) -> list[int]:
        """Numbers of the convolutions that CUDA kernels can take."""
        return [
            number
            for number, conv in enumerate(self.convolutions)
            if conv.out_channels in CUDA_CHANNELS
            and conv.stride[0] == 1
            and _padded(conv.in_channels) == conv.out_channels
        ]

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

    def counts(self, device: torch.device, pixels: tuple[int, ...]) -> Tensor:
        """For each channel of each norm, over how many pixels of the batch it goes."""
        if (device, pixels) not in self._counts:
            each = torch.tensor(pixels, dtype=torch.float32)
            counts = each.repeat_interleave(torch.tensor(self.widths)).to(device)
            self._counts[device, pixels] = counts
        return self._counts[device, pixels]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within, gather weights once, however often they are asked for.

        Nothing may change them meanwhile, as in a step before its update. Its training pass changes
        running statistics, but only a search reads those, and comes first.
        """
        self._held = {}
        try:
            yield
        finally:
            self._held = None

    def for_training(self, dtype: torch.dtype) -> Weights:
        """Norms as they are: their factors and offsets."""
        kernels, scale, shift = self._once(dtype, lambda: self._gather(dtype))
        return self._weights(kernels, scale, shift)

    def for_evaluation(self, dtype: torch.dtype) -> Weights:
        """Norms in evaluation mode, as affine maps."""
        return self._once(("evaluation", dtype), lambda: self._for_evaluation(dtype))

    def _for_evaluation(self, dtype: torch.dtype) -> Weights:
        kernels, factor, offset = self._once(dtype, lambda: self._gather(dtype))
        statistics = torch.cat([*self._of_norms("running_mean"), *self._of_norms("running_var")])
        mean, variance = statistics.chunk(2)
        scale = (variance + self.norms[0].eps).rsqrt_().mul_(factor)
        return self._weights(kernels, scale, offset.addcmul(mean, scale, value=-1))

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if self._held is None:
            return make()
        if key not in self._held:
            self._held[key] = make()
        return cast(T, self._held[key])

    def _gather(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Kernels in half precision, plain and as fragments; and factors and offsets of norms."""
        places, zero = self._places_on(self.model.stem.weight.device)
        kernels = [conv.weight.permute(0, 2, 3, 1).reshape(-1) for conv in self.convolutions]
        # Norms first, so that what kernels read of them begins at a multiple of 16 bytes.
        norms = [*self._of_norms("weight"), *self._of_norms("bias")]
        width = sum(self.widths)
        scale, shift, flat = torch.cat([*norms, *kernels, zero]).tensor_split((width, 2 * width))
        return flat.to(dtype).index_select(0, places), scale, shift

    def _places_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where each value of the gathered kernels is in the parameters, one after another and
        then a zero; and that zero."""
        if device not in self._places:
            sizes = [conv.weight.numel() for conv in self.convolutions]
            *starts, zero = accumulate(sizes, initial=0)
            each = zip(self.convolutions, starts, strict=True)
            plain = [_padded_places(conv, start, zero) for conv, start in each]
            fragments = [
                as_fragments(plain[number], self.widths[number], transposed=transposed)
                for transposed in (False, True)
                for number in self.square
            ]
            places = torch.cat([*plain, *(each.flatten() for each in fragments)])
            self._places[device] = places.int().to(device), torch.zeros(1, device=device)
        return self._places[device]

    def _of_norms(self, name: str) -> list[Tensor]:
        return [cast(Tensor, getattr(norm, name)) for norm in self.norms]

    def _weights(self, kernels: Tensor, scale: Tensor, shift: Tensor) -> Weights:
        plain, fragments = kernels.tensor_split((sum(self.kernel_sizes),))
        return Weights(
            plain,
            fragments.view(2, -1),
            scale,
            shift,
            self.kernel_sizes,
            self.widths,
            self.square,
        )


def _padded_places(convolution: nn.Conv2d, start: int, zero: int) -> Tensor:
    """Where the values of a kernel are that begins somewhere, with zeros for missing channels."""
    rows, before = 9 * convolution.out_channels, convolution.in_channels
    places = start + torch.arange(rows * before).view(rows, before)
    return F.pad(places, (0, _padded(before) - before), value=zero).flatten()


def _padded(channels: int) -> int:
    return max(PADDED, channels)
