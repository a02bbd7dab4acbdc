"""Score poses on images in tiles that fit into memory: evaluation and training share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from upright.devices import sent
from upright.pose import Pose
from upright.tracing import is_capturing

__all__ = [
    "Answer",
    "Memory",
    "Room",
    "Tiles",
    "images_at_once",
    "images_on_a_gpu",
    "is_out_of_memory",
    "usual_batch",
]

_PATIENCE = 8
_PAUSES_SECONDS = (0.0, 0.02, 0.1, 0.3)

_NO_MEMORY = (
    "not enough memory",  # PyTorch on a CPU
    "can't allocate memory",
    "out of memory",  # CUDA, and what calls it
    "alloc_failed",  # cuBLAS and cuDNN
    "failed to allocate memory",  # onnxruntime: its arena
    "smaller than requested bytes",  # the same, at a limit of its own
    "bad_alloc",  # C++, as onnxruntime passes it on
    "bad allocation",
)
"""What libraries say, in small letters, when memory is short."""


def images_at_once(images: Tensor, at_32_by_32: int) -> int:
    """How many images of this size are as many pixels as so many of 32 x 32."""
    return max(8, at_32_by_32 * 32 * 32 // (images.shape[-1] * images.shape[-2]))


def images_on_a_gpu(images: Tensor) -> int:
    """How many images of this size keep a GPU busy for longer than their launches take.

    Large ones are fewer, but not as few as their pixels would be.
    """
    return max(images_at_once(images, 8192), min(512, images_at_once(images, 4 * 8192)))


def usual_batch(images: Tensor) -> int:
    """A batch that keeps the device busy; small enough on a CPU to stay in its cache."""
    return images_on_a_gpu(images) if images.is_cuda else images_at_once(images, 128)


@dataclass
class Room:
    """How many images are taken at once: half where some did not fit, and in time more again.

    A lack of memory may be another process's, and pass. So after some batches that fitted, twice as
    many are tried, up to the first size; where that fails again, the next try waits twice as long.
    A single image is tried a few times before it is given up.
    """

    batch_size: int
    _most: int = field(init=False)
    _too_many: int = field(default=0, init=False)
    """The size that failed last, if none as large has fitted since."""
    _fitted: int = field(default=0, init=False)
    """Batches of about this size that fitted."""
    _patience: int = field(default=_PATIENCE, init=False)
    """Batches that have to fit before more are tried."""
    _failed: int = field(default=0, init=False)
    """How often in a row a single image did not fit."""

    def __post_init__(self) -> None:
        self._most = self.batch_size

    def make_room(self, tried: int, error: Exception) -> None:
        """Take smaller batches from now on, after one of ``tried`` images did not fit."""
        if (
            not is_out_of_memory(error) or is_capturing()
        ):  # what a graph has captured cannot be taken back
            raise error
        if tried <= 1:
            self._wait(error)
        self._patience *= 2 if 0 < self._too_many <= tried else 1
        self.batch_size, self._too_many, self._fitted = max(1, tried // 2), tried, 0
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def fitted(self, images: int) -> None:
        """Take more images in time, after so many have fitted."""
        self._failed = 0
        if images >= self._too_many:
            self._too_many, self._patience = 0, _PATIENCE
        self._fitted += 2 * images > self.batch_size  # fewer say nothing
        if self._fitted >= self._patience and self.batch_size < self._most:
            self.batch_size, self._fitted = min(2 * self.batch_size, self._most), 0

    def _wait(self, error: Exception) -> None:
        """Wait before a single image is tried again, longer each time; or give it up."""
        if self._failed == len(_PAUSES_SECONDS):
            raise MemoryError(
                "the model does not fit into memory with a single image; "
                "use a smaller model, smaller images or another device"
            ) from error
        time.sleep(_PAUSES_SECONDS[self._failed])
        self._failed += 1


@dataclass(frozen=True)
class Answer:
    """The values of one tile, tries x images, and where a gradient was asked, their slopes."""

    value: Tensor
    slope: Tensor | None = None

    def at(self, positions: Tensor) -> Tensor:
        """Give the values: where there are slopes, as the linear function that has both.

        The model's graph is freed with its tile, and memory stays bounded by one.
        """
        if self.slope is None:
            return self.value
        linear = (self.slope * (positions - positions.detach())).sum(-1)
        return self.value + linear.to(self.value)


class Memory(Protocol):
    """What was answered about some poses before, by tries and rows of images."""

    def recall(self, tries: slice, rows: slice) -> Answer | None: ...

    def keep(self, tries: slice, rows: slice, answer: Answer) -> None: ...


@dataclass(frozen=True)
class Tiles:
    """A score (see ``attacks.Score``) of so many images, never of more at once than there is room.

    Values may have axes of their own behind; where a gradient is asked, they have none.
    """

    room: Room
    count: int
    device: torch.device
    values: Callable[[Pose, slice], Tensor]
    """The values of one tile, tries x some of the images, which follow each other. Poses have the
    same shape, or (tries, 1) where all images share them."""
    done: Callable[[int], None] = lambda _: None
    """Told of the images of each tile that fitted."""
    memory: Memory | None = None
    """What need not be asked again, if anything is remembered."""

    def __call__(self, pose: Pose) -> Tensor:
        pose = pose.like(sent(pose.values, self.device))
        if pose.values.requires_grad and len(pose.shape) > 1:
            pose = pose.like(pose.values.expand(-1, self.count, -1))  # each image has its own slope
        tries = pose.like(pose.values.reshape(-1, *pose.values.shape[-2:]))
        values = self._block(tries, 0, 0, self.count)
        return values.reshape(*pose.shape[:-1], *values.shape[1:])

    def _block(self, poses: Pose, first: int, start: int, stop: int) -> Tensor:
        """Score the images from start to stop, from a first try on: tries x images.

        Images stay in their order, with all tries for one after another: none has to be copied.
        """
        batch, count = self.room.batch_size, stop - start
        if count > batch:
            edges = range(start, stop, batch)
            parts = [self._block(poses, first, edge, min(edge + batch, stop)) for edge in edges]
            return torch.cat(parts, 1)
        if len(poses) * count > batch and len(poses) > 1:
            groups = poses.split(each := max(1, batch // count))
            edges = range(first, first + len(poses), each)
            parts = [self._block(*at, start, stop) for at in zip(groups, edges, strict=True)]
            return torch.cat(parts)
        own = poses if poses.shape[-1] == 1 else poses[:, start:stop]
        tries, rows = slice(first, first + len(poses)), slice(start, stop)
        answer = None if self.memory is None else self.memory.recall(tries, rows)
        if answer is not None:
            self.done(len(poses) * count)
            return answer.at(own.values)
        answer = self._try(own, rows, len(poses) * count)
        if answer is None:
            return self._block(poses, first, start, stop)
        if self.memory is not None:
            self.memory.keep(tries, rows, answer)
        return answer.at(own.values)

    def _try(self, poses: Pose, rows: slice, images: int) -> Answer | None:
        """Score one tile of so many images; None where they did not fit."""
        try:
            answer = self._tile(poses, rows)
        except Exception as error:  # of any kind: a runtime's own need not be a RuntimeError
            self.room.make_room(images, error)
            return None
        self.room.fitted(images)
        self.done(images)
        return answer

    def _tile(self, poses: Pose, rows: slice) -> Answer:
        """Score one tile; where a gradient is asked, it is taken at once."""
        positions = poses.values
        wants_gradient = torch.is_grad_enabled() and positions.requires_grad
        here = positions.detach().requires_grad_(wants_gradient)
        value = self.values(poses.like(here), rows)
        if not (wants_gradient and value.requires_grad):
            return Answer(value.detach())
        # None where the gradient is of the model's weights alone, which never saw these images.
        (slope,) = torch.autograd.grad(value.sum(), here, allow_unused=True)
        return Answer(value.detach(), slope)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that something did not fit, in any of the ways to say so."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return any(words in text for words in _NO_MEMORY)
