"""Any kind of data as a stream of chunks of one fixed size.

A chunk is the unit of the search: what happens to an image depends on its place in the data alone,
not on how the data came in batches or on how many images fit into the model at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

__all__ = ["Chunk", "Data", "chunk_size", "chunks", "count_images"]

Data = tuple[Tensor, Tensor] | Dataset[Any] | DataLoader[Any] | Iterable[tuple[Tensor, Tensor]]
"""A pair of tensors, a Dataset, a DataLoader, or any iterable of batches of images and labels."""

# A state is kept after each chunk: the larger the images, the longer each one takes.
_IMAGES_AT_MOST, _BYTES_AT_MOST = 512, 2**24


@dataclass(frozen=True)
class Chunk:
    """Consecutive images, float, and their labels."""

    start: int
    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)


def chunks(data: Data, limit: int | None = None) -> Iterator[Chunk]:
    """Cut data into chunks, up to ``limit`` images."""
    start, images, labels = 0, torch.empty(0), torch.empty(0)
    for more_images, more_labels in _first(_batches(data), limit):
        if not len(more_images):
            continue
        if len(images) and images.shape[1:] != more_images.shape[1:]:
            raise ValueError(
                f"images of shape {tuple(images.shape[1:])} and {tuple(more_images.shape[1:])} in "
                "one data set: resize or crop them to one size"
            )
        images = torch.cat((images, more_images)) if len(images) else more_images
        labels = torch.cat((labels, more_labels)) if len(labels) else more_labels
        size = chunk_size(images)
        while len(images) >= size:
            yield _chunk(start, images[:size], labels[:size])
            start, images, labels = start + size, images[size:], labels[size:]
    if len(images):
        yield _chunk(start, images, labels)


def count_images(data: Data, limit: int | None = None) -> int | None:
    """Count the images where that can be told without reading them."""
    source: Any = cast(Any, data)[0] if _is_pair(data) else data
    source = source.dataset if isinstance(source, DataLoader) else source
    if isinstance(source, Tensor | np.ndarray | Dataset) and hasattr(source, "__len__"):
        return min(len(source), limit) if limit is not None else len(source)
    return limit


def _chunk(start: int, images: Tensor, labels: Tensor) -> Chunk:
    return Chunk(start, images.float() / 255 if images.dtype == torch.uint8 else images, labels)


def chunk_size(images: Tensor) -> int:
    """Give how many images of this size are a chunk."""
    bytes_per_image = 4 * max(1, images[0].numel())
    return max(1, min(_IMAGES_AT_MOST, _BYTES_AT_MOST // bytes_per_image))


def _is_pair(data: object) -> bool:
    array = (Tensor, np.ndarray)
    return (
        isinstance(data, tuple | list)
        and len(data) == 2
        and isinstance(data[0], array)
        and isinstance(data[1], array)
    )


def _first(
    batches: Iterator[tuple[Tensor, Tensor]], limit: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pass on the first ``limit`` images, and read no batch beyond them."""
    for images, labels in batches:
        yield images[:limit], labels[:limit]
        if limit is not None:
            limit -= len(images)
            if limit <= 0:
                return


def _batches(data: Any) -> Iterator[tuple[Tensor, Tensor]]:
    if _is_pair(data):
        images, labels = (torch.as_tensor(part) for part in data)
        if len(images) != len(labels):
            raise ValueError(
                f"{len(images)} images, but {len(labels)} labels: they must be as many"
            )
        size = chunk_size(images) if len(images) else 1
        yield from zip(images.split(size), labels.split(size), strict=True)
        return
    loader = data
    if isinstance(data, Dataset):
        # A generator of its own: a loader draws a seed, by default from the global one.
        loader = DataLoader(data, batch_size=64, generator=torch.Generator())
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(
                f"each batch must be a pair (images, labels), but one is {type(batch).__name__}; "
                "map the data to such pairs"
            )
        images, labels = (torch.as_tensor(part) for part in batch)
        if len(images) != len(labels):
            raise ValueError(f"a batch has {len(images)} images, but {len(labels)} labels")
        yield images, labels
