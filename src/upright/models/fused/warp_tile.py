"""What a warp of the CUDA kernels computes, and shapes of activations that divide into it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from upright.models.resnet import SLOPE

__all__ = ["CUDA_CHANNELS", "WARP_CHANNELS", "WARP_LINES", "WARP_PIXELS", "Activations"]

WARP_LINES, WARP_PIXELS, WARP_CHANNELS = 8, 16, 16
"""A warp's tile of a convolution's output: lines, pixels of each, and channels."""
CUDA_CHANNELS = (16, 32, 64)
"""Numbers of channels for which there is a CUDA kernel."""


@dataclass(frozen=True)
class Activations:
    """The shape of activations that a convolution leaves as it is."""

    channels: int
    height: int
    width: int
    dtype: torch.dtype

    @property
    def tiles_evenly(self) -> bool:
        """Whether warps can share them. More channels would lack registers."""
        whole = self.height % WARP_LINES == 0 and self.width % WARP_PIXELS == 0
        return whole and self.is_half and self.channels in (16, 32)

    @property
    def is_half(self) -> bool:
        return self.dtype in (torch.float16, torch.bfloat16)

    @property
    def slices(self) -> int:
        """How many times the channels that a warp computes."""
        return self.channels // WARP_CHANNELS

    def warps_of(self, lines: int) -> int:
        """How many warps so many lines of an image take."""
        return lines // WARP_LINES * -(-self.width // WARP_PIXELS) * self.slices

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
