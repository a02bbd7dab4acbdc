"""What the CUDA kernels of this folder share on the host's side: what a warp takes of activations,
and weights as its lanes hold them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from upright.models.resnet import SLOPE

__all__ = ["CHANNELS", "HALF", "LINES", "STRIP", "Activations", "arrange"]

LINES, STRIP, HALF = 8, 16, 16
"""What a warp takes: lines, pixels of each, and output channels."""
CHANNELS = (16, 32, 64)
"""Of activations that a kernel of this folder takes."""


@dataclass(frozen=True)
class Activations:
    """The shape of activations that a convolution leaves as it is."""

    channels: int
    height: int
    width: int
    dtype: torch.dtype

    @property
    def divide(self) -> bool:
        """Whether warps can share them. More channels would lack registers."""
        whole = self.height % LINES == 0 and self.width % STRIP == 0
        return whole and self.is_half and self.channels in (16, 32)

    @property
    def is_half(self) -> bool:
        return self.dtype in (torch.float16, torch.bfloat16)

    def warps_of(self, lines: int) -> int:
        """How many warps so many lines of an image take."""
        return lines // LINES * -(-self.width // STRIP) * (self.channels // HALF)

    def options_with(self, **values: object) -> list[str]:
        """For the compiler: these values, and what all kernels have to know."""
        known: dict[str, object] = {
            "CHANNELS": self.channels,
            "HEIGHT": self.height,
            "WIDTH": self.width,
            "SLOPE": f"{SLOPE}f",
        }
        half = ["-DBFLOAT"] if self.dtype == torch.bfloat16 else []
        return [f"-D{name}={value}" for name, value in (known | values).items()] + half


def arrange(kernels: Tensor, channels: int, *, transposed: bool = False) -> Tensor:
    """Lay kernels out as the lanes of a warp hold them, one row for each.

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
    depth = channels // HALF
    order = product(range(depth), range(9), range(depth), range(32), range(2), range(2), range(2))
    places = []
    for part, tap, inner, lane, side, half, odd in order:
        after = (2 * part + side) * 8 + lane // 4
        before = 16 * inner + 8 * half + 2 * (lane % 4) + odd
        if transposed:
            after, before, tap = before, after, 8 - tap
        places.append((after * 9 + tap) * channels + before)
    return torch.tensor(places, device=device)
