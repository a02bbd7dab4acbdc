"""Images that threads read beside whoever uses them: the first are there long before the last."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import torch
from torch import Tensor

from upright.data.images import LabelledImages

__all__ = ["BeingRead"]

_AHEAD = 64
"""Images that are read before anybody asks for them."""
_AT_ONCE = 16
_MOST_THREADS = 8


class BeingRead(LabelledImages):
    """Images (see ``LabelledImages``) of which each is read when its turn comes, and then kept.

    Memory grows with what was read. Who asks for all ``images`` waits for all.
    """

    _read_one: Callable[[int], Tensor]
    _room: Tensor
    _there: Tensor
    """bool: which images are read."""

    def __init__(
        self,
        read_one: Callable[[int], Tensor],
        shape: torch.Size,
        labels: Tensor,
        classes: tuple[str, ...],
    ) -> None:
        """Know images of one ``shape``, C x H x W, of which ``read_one`` gives that at a place."""
        # Only pages that something is written to take memory.
        room = torch.empty((len(labels), *shape), dtype=torch.uint8)
        there = torch.zeros(len(labels), dtype=torch.bool)
        parts = {"labels": labels, "classes": classes, "_room": room, "_there": there}
        for name, part in (parts | {"_read_one": read_one}).items():
            object.__setattr__(self, name, part)  # a frozen one has no other way

    @property
    def images(self) -> Tensor:
        """All images; waits until they are read."""
        for _ in self.read(torch.arange(len(self))):
            pass
        return self._room

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self._room.shape)
        return f"BeingRead({shape}, {len(self.classes)} classes)"

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        (image,) = self._at(torch.tensor([index % len(self)]))
        return image.to(torch.float32) / 255, int(self.labels[index])

    def head(self, count: int) -> LabelledImages:
        return self.take(torch.arange(len(self))[:count])

    def take(self, places: Tensor) -> LabelledImages:
        """The images at these places, in their order, as a copy; others are not read."""
        return LabelledImages(self._at(places), self.labels[places], self.classes)

    def read(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the images at these places, in their order, and their labels, in batches.

        Threads read some images ahead, in that order.
        """
        missing = iter(places[~self._there[places]].tolist())
        coming: deque[tuple[int, Future[None]]] = deque()
        pool = ThreadPoolExecutor(_threads(), thread_name_prefix="upright-read")
        try:
            for some in places.split(_AT_ONCE):
                for place in some.tolist():
                    for next_one in islice(missing, _AHEAD - len(coming)):
                        coming.append((next_one, pool.submit(self._keep, next_one)))
                    if coming and coming[0][0] == place:
                        coming.popleft()[1].result()
                yield self._room[some], self.labels[some]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _at(self, places: Tensor) -> Tensor:
        for _ in self.read(places):
            pass
        return self._room[places]

    def _keep(self, place: int) -> None:
        self._room[place] = self._read_one(place)
        self._there[place] = True


def _threads() -> int:
    return min(_MOST_THREADS, os.cpu_count() or 1)
