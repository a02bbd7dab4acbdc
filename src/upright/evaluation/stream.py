"""Any kind of data as a stream of chunks of one fixed size.

A chunk is the unit of the search: what happens to an image depends on its place in the data alone,
not on how the data came in batches or on how many images fit into the model at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from upright.checks import warn_if_masks
from upright.evaluation.batches import Batch, Data, batches, check_alike, is_whole
from upright.modes import ordinary

__all__ = ["Chunk", "Data", "chunk_size", "chunks", "count_images", "cuts"]

_IMAGES_AT_MOST, _BYTES_AT_MOST = 512, 2**24
_PIXELS_ASKED = 2**26
"""Of a random part, which ends with a whole chunk: what a chunk asks, over all its poses. It is one
image of 224 px under 775 poses."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive images, float, and their labels."""

    start: int
    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)


def chunks(
    data: Data, limit: int | None = None, *, places: Tensor | None = None, passes: int = 0
) -> Iterator[Chunk]:
    """Cut data into chunks, up to ``limit`` images; or the images at some places, in their order.

    With so many ``passes`` for each image, chunks are small enough to be done in a short time.
    """
    start, images, labels = 0, torch.empty(0), torch.empty(0)
    for more_images, more_labels in _first(batches(data, places), limit):
        if not len(more_images):
            continue
        if len(images):
            check_alike(images[0], more_images[0])
            if images.dtype != more_images.dtype:
                images, more_images = _as_float(images), _as_float(more_images)
        images = torch.cat((images, more_images)) if len(images) else more_images
        labels = torch.cat((labels, more_labels)) if len(labels) else more_labels
        size = chunk_size(images, passes)
        while len(images) >= size:
            yield _chunk(start, images[:size], labels[:size])
            start, images, labels = start + size, images[size:], labels[size:]
    if len(images):
        yield _chunk(start, images, labels)


def count_images(data: Data, limit: int | None = None) -> int | None:
    """Count the images where that can be told without reading them."""
    source: Any = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, tuple | list) and is_whole(source):
        source = source[0]
    elif not isinstance(source, Dataset) or not isinstance(source, Sized):
        return limit  # of samples or of batches, no length says
    return min(len(source), limit) if limit is not None else len(source)


def cuts(data: Data, limit: int | None) -> bool:
    """Whether data have more images than the limit, as far as can be told without reading them."""
    count = count_images(data)
    return limit is not None and (count is None or count > limit)


def _chunk(start: int, images: Tensor, labels: Tensor) -> Chunk:
    if start == 0 and images.dtype == torch.uint8:
        warn_if_masks(images)
    return Chunk(start, ordinary(_as_float(images)), ordinary(labels))


def _as_float(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8:
        return images
    return images.float() / 255


def chunk_size(images: Tensor, passes: int = 0) -> int:
    """Give how many images of this size are a chunk; of so many passes each, if that is to count.

    Neither a device nor a batch size decides: what is drawn for an image depends on its chunk.
    """
    bytes_per_image = 4 * max(1, images[0].numel())
    most = min(_IMAGES_AT_MOST, _BYTES_AT_MOST // bytes_per_image)
    if passes:
        most = min(most, _PIXELS_ASKED // (passes * max(1, images[0, 0].numel())))
    return max(1, most)


def _first(whole: Iterator[Batch], limit: int | None) -> Iterator[Batch]:
    """Pass on the first ``limit`` images, and read no batch beyond them."""
    for images, labels in whole:
        yield Batch(images[:limit], labels[:limit])
        if limit is not None:
            limit -= len(images)
            if limit <= 0:
                return
