"""How images lie in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Form"]


class Form(NamedTuple):
    """How images lie in memory, such as a network takes them."""

    dtype: torch.dtype
    channels_last: bool = False

    def of(self, images: Tensor) -> Tensor:
        """Give images so, N x C x H x W, as they are where they lie so."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return images.to(self.dtype).contiguous(memory_format=layout)

    def empty(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Give room for images of a shape."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return torch.empty(shape, dtype=self.dtype, device=like.device, memory_format=layout)
