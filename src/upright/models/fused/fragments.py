"""A convolution's weights as the B fragments of an mma: as the lanes of a warp hold them."""

from __future__ import annotations

from functools import cache
from itertools import product

import torch
from torch import Tensor

from upright.models.fused.warp_tile import WARP_CHANNELS

__all__ = ["as_fragments"]


def as_fragments(kernels: Tensor, channels: int, *, transposed: bool = False) -> Tensor:
    """Lay kernels, after x 3 x 3 x before each, out as fragments: one row for each.

    Transposed, they are those of the gradient of the convolution's input, which is itself a
    convolution: with the taps in the opposite order, and from the output's channels to the input's.
    """
    places = _places(channels, transposed, kernels.device)
    return kernels.view(-1, 9 * channels * channels)[:, places]


@cache
def _places(channels: int, transposed: bool, device: torch.device) -> Tensor:
    """Where each value of a kernel's new layout is in the old one.

    A lane has, for every tap and sixteen channels before, two columns of the matrix of a product,
    of eight output channels each; and of a column four values, two of each half.
    """
    slices = channels // WARP_CHANNELS
    order = product(range(slices), range(9), range(slices), range(32), range(2), range(2), range(2))
    places = []
    for slice_after, tap, slice_before, lane, n8, half, odd in order:
        after = (2 * slice_after + n8) * 8 + lane // 4
        before = 16 * slice_before + 8 * half + 2 * (lane % 4) + odd
        if transposed:
            after, before, tap = before, after, 8 - tap
        places.append((after * 9 + tap) * channels + before)
    return torch.tensor(places, device=device)
