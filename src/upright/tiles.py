"""Score poses on images in tiles that fit into memory: evaluation and training share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from upright.pose import Pose

__all__ = ["Room", "Rows", "Tiles", "images_at_once", "is_out_of_memory", "is_recording"]

Rows = slice | Tensor
"""Some of the images: consecutive ones, or one for each pose."""


def images_at_once(images: Tensor, at_32_by_32: int) -> int:
    """How many images of this size are as many pixels as so many of 32 x 32."""
    return max(8, at_32_by_32 * 32 * 32 // (images.shape[-1] * images.shape[-2]))


def is_recording() -> bool:
    """Whether a CUDA graph records what is computed now: no value can be looked at."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


@dataclass
class Room:
    """How many images are taken at once: fewer from then on, where some did not fit."""

    batch_size: int

    def make_room(self, tried: int, error: Exception) -> None:
        """Take smaller batches from now on, after one of ``tried`` images did not fit."""
        if not is_out_of_memory(error) or is_recording():  # a record cannot be taken back
            raise error
        if tried <= 1:
            raise MemoryError(
                "the model does not fit into memory with a single image; "
                "use a smaller model, smaller images or another device"
            ) from error
        self.batch_size = tried // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class Tiles:
    """A score (see ``attacks.Score``) of so many images, never of more at once than there is room.

    Values may have axes of their own behind; where a gradient is asked, they have none.
    """

    room: Room
    count: int
    device: torch.device
    values: Callable[[Tensor, Rows], Tensor]
    """The values of one tile. Positions of shape (n, 3) belong to n rows, each to one of them;
    of shape (m, 1, 3), all to all."""

    def __call__(self, pose: Pose) -> Tensor:
        position = pose.stack().to(self.device)  # once: a copy from the host waits
        if position.requires_grad and position.ndim > 2:
            position = position.expand(-1, self.count, -1)  # each image has its own slope
        if position.ndim > 2 and position.shape[-2] == 1:
            return self._block(position[..., 0, :], 0, self.count)
        row = torch.arange(self.count, device=self.device).expand(position.shape[:-1])
        values = self._pairs(position.reshape(-1, 3), row.reshape(-1))
        return values.reshape(*position.shape[:-1], *values.shape[1:])

    def _block(self, positions: Tensor, start: int, stop: int) -> Tensor:
        """Score every pose on every image from start to stop: poses x images."""
        batch, poses, count = self.room.batch_size, len(positions), stop - start
        if count > batch:
            edges = range(start, stop, batch)
            parts = [self._block(positions, edge, min(edge + batch, stop)) for edge in edges]
            return torch.cat(parts, 1)
        if poses * count > batch and poses > 1:
            groups = positions.split(max(1, batch // count))
            return torch.cat([self._block(group, start, stop) for group in groups])
        try:
            return self._tile(positions[:, None], slice(start, stop))
        except (MemoryError, RuntimeError) as error:
            self.room.make_room(poses * count, error)
        return self._block(positions, start, stop)

    def _pairs(self, positions: Tensor, rows: Tensor) -> Tensor:
        """Score each pose on the image in its row."""
        batch = self.room.batch_size
        if len(positions) > batch:
            parts = zip(positions.split(batch), rows.split(batch), strict=True)
            return torch.cat([self._pairs(*part) for part in parts])
        try:
            return self._tile(positions, rows)
        except (MemoryError, RuntimeError) as error:
            self.room.make_room(len(positions), error)
        return self._pairs(positions, rows)

    def _tile(self, positions: Tensor, rows: Rows) -> Tensor:
        """Score one tile; where a gradient is asked, it is taken at once.

        The result then is the linear function that has the value and the gradient of the score: the
        model's graph is freed with its tile, and memory stays bounded by one.
        """
        wants_gradient = torch.is_grad_enabled() and positions.requires_grad
        here = positions.detach().requires_grad_(wants_gradient)
        value = self.values(here, rows)
        if not (wants_gradient and value.requires_grad):
            return value.detach()
        (slope,) = torch.autograd.grad(value.sum(), here)
        linear = (slope * (positions - here.detach())).sum(-1)
        return value.detach() + linear.to(value)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that something did not fit, in any of the ways to say so."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        "not enough memory" in str(error) or "can't allocate memory" in str(error)
    )
