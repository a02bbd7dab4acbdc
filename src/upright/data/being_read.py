"""Images that threads read beside whoever uses them: the first are there long before the last."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import torch
from torch import Tensor

from upright.callers import warning_here
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
    _look_at: Callable[[list[int]], None] | None
    _shape: torch.Size
    _there: dict[int, Tensor]
    """The images that were read, by their places."""
    _whole: Tensor | None
    """Memory for all images in one piece, once somebody asks for all in their order."""
    _lock: threading.Lock

    def __init__(
        self,
        read_one: Callable[[int], Tensor],
        shape: torch.Size,
        labels: Tensor,
        classes: tuple[str, ...],
        *,
        look_at: Callable[[list[int]], None] | None = None,
    ) -> None:
        """Know images of one ``shape``, C x H x W, of which ``read_one`` gives that at a place.

        ``look_at`` is shown the places that are to be read, before the first of them is.
        """
        known = {"labels": labels, "classes": classes, "_shape": shape}
        ways = {"_read_one": read_one, "_look_at": look_at, "_lock": threading.Lock()}
        memory = {"_there": dict[int, Tensor](), "_whole": None}
        for name, part in (known | ways | memory).items():
            object.__setattr__(self, name, part)  # a frozen one has no other way

    @property
    def images(self) -> Tensor:
        """All images; waits until they are read."""
        for _ in self.read(torch.arange(len(self))):
            pass
        assert self._whole is not None
        return self._whole

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in (len(self), *self._shape))
        return f"BeingRead({shape}, {len(self.classes)} classes)"

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        (image,) = self._at(torch.tensor([index % len(self)]))
        return image.to(torch.float32) / 255, int(self.labels[index])

    def head(self, count: int) -> LabelledImages:
        return self.take(torch.arange(len(self))[:count])

    def take(self, places: Tensor) -> LabelledImages:
        """The images at these places, in their order, as a copy; others are not read."""
        return LabelledImages(self._at(places), self.labels[places], self.classes)

    def relabelled(self, labels: Tensor, classes: tuple[str, ...]) -> LabelledImages:
        """The same images with other labels; none is read for that."""
        return BeingRead(self._read_one, self._shape, labels, classes, look_at=self._look_at)

    def read(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the images at these places, in their order, and their labels, in batches.

        Threads read some images ahead, in that order.
        """
        to_read = [place for place in places.tolist() if place not in self._there]
        if to_read and self._look_at is not None:
            self._look_at(to_read)
        if places.equal(torch.arange(len(self))):
            self._lay_out()
        missing, keep = iter(to_read), warning_here(self._keep)
        coming: deque[tuple[int, Future[None]]] = deque()
        pool = ThreadPoolExecutor(_threads(), thread_name_prefix="upright-read")
        try:
            for some in places.split(_AT_ONCE):
                for place in some.tolist():
                    for next_one in islice(missing, _AHEAD - len(coming)):
                        coming.append((next_one, pool.submit(keep, next_one)))
                    if coming and coming[0][0] == place:
                        coming.popleft()[1].result()
                yield self._stacked(some), self.labels[some]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _at(self, places: Tensor) -> Tensor:
        for _ in self.read(places):
            pass
        return self._stacked(places)

    def _stacked(self, places: Tensor) -> Tensor:
        return torch.stack([self._there[place] for place in places.tolist()])

    def _lay_out(self) -> None:
        """Make one piece of memory for all images, with those that are there."""
        with self._lock:
            if self._whole is not None:
                return
            # Only pages that something is written to take memory.
            whole = torch.empty((len(self), *self._shape), dtype=torch.uint8)
            for place, image in self._there.items():
                self._there[place] = whole[place].copy_(image)
            object.__setattr__(self, "_whole", whole)

    def _keep(self, place: int) -> None:
        image = self._read_one(place)
        with self._lock:
            if self._whole is not None:
                image = self._whole[place].copy_(image)
            self._there[place] = image.contiguous()


def _threads() -> int:
    return min(_MOST_THREADS, os.cpu_count() or 1)
