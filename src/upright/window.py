"""The part of an image that a model sees, and how it lies in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Form", "Window"]


@dataclass(frozen=True)
class Window:
    """The part of images that comes out, and what is seen of it in the end, in pixels."""

    top: int
    left: int
    height: int
    width: int
    size: tuple[int, int]
    """Of what is seen: height and width, without the canvas."""
    centre: tuple[float, float]
    """Of what is seen: the row and column in the image, about which maps are."""

    @staticmethod
    def of(images: Tensor, view: int | None = None, *, margin: int = 0) -> Window:
        """The central square of this side, or all of an image with so much canvas around it."""
        height, width = images.shape[-2:]
        if view is None:
            size = height - 2 * margin, width - 2 * margin
            return Window(0, 0, height, width, size, ((height - 1) / 2, (width - 1) / 2))
        if not 1 <= view <= min(height, width):
            raise ValueError(
                f"a view of {view} pixels does not lie in images of {height} x {width}; give "
                "larger images, or a smaller view"
            )
        top, left, middle = (height - view) // 2, (width - view) // 2, (view - 1) / 2
        return Window(top, left, view, view, (view, view), (top + middle, left + middle))

    def around(self, images: Tensor) -> Window:
        """All of the image, with what is seen in the end where it is."""
        height, width = images.shape[-2:]
        return replace(self, top=0, left=0, height=height, width=width)

    def cut(self, images: Tensor) -> Tensor:
        """Give the part of images that is in the window, as a tensor of its own where it is one."""
        if images.shape[-2:] == (self.height, self.width):
            return images
        rows = slice(self.top, self.top + self.height)
        # Some kernels of networks read images as one block.
        return images[..., rows, self.left : self.left + self.width].contiguous()


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
