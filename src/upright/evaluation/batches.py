"""Whatever people bring as data, as batches of images and labels.

Data come all at once, in batches or one by one; each time as a pair, or as a dict with the usual
names; images as tensors, arrays or pictures of PIL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from upright.checks import UNSIGNED
from upright.pictures import as_seen

__all__ = [
    "Batch",
    "Data",
    "InAnyOrder",
    "Indexed",
    "batches",
    "check_alike",
    "count_by_number",
    "is_whole",
]

_IMAGES = ("pixel_values", "image", "img", "images")
_LABELS = ("labels", "label", "target", "targets")

_GATHERED = 64
"""Samples that come one by one and make a batch."""


@runtime_checkable
class Indexed(Protocol):
    """A data set in all but its base class: it has a length, and gives items by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class InAnyOrder(Protocol):
    """Data that read themselves, in the order that they are told: they may read ahead."""

    def __len__(self) -> int: ...

    def read(self, places: Tensor, /) -> Iterator[tuple[Tensor, Tensor]]:
        """Give batches of the images at these places, one after another, and their labels."""


Data = (
    tuple[Any, Any] | Mapping[str, Any] | Dataset[Any] | DataLoader[Any] | Indexed | Iterable[Any]
)
"""All images and labels, as a pair or a dict; or a Dataset, a DataLoader, or anything that gives
batches or samples, by number or one after another."""


class Batch(NamedTuple):
    """Images and as many labels; or a sample, which is one image and its label."""

    images: Tensor
    labels: Tensor

    @property
    def is_sample(self) -> bool:
        return not self.labels.ndim or (
            self.images.ndim == 3 and len(self.images) != len(self.labels)
        )


def batches(data: Data, places: Tensor | None = None) -> Iterator[Batch]:
    """Give data in batches, of whichever sizes they come in; samples are gathered.

    With ``places``, the images that lie there, in their order.
    """
    gathered: list[Batch] = []
    for batch in map(_read, _items(data) if places is None else _at(data, places)):
        if batch.is_sample:
            gathered.append(batch)
            if len(gathered) == _GATHERED:
                yield _together(gathered)
                gathered = []
        else:
            yield _checked(batch)
    if gathered:
        yield _together(gathered)


def count_by_number(data: Data) -> int:
    """Count the images of data that give any of them by its number; others are refused."""
    if is_whole(data):
        return len(_whole(data).labels)
    source: Any = data
    by_number = isinstance(source, InAnyOrder | Indexed)
    if not by_number or isinstance(source, DataLoader | IterableDataset):
        raise ValueError(
            "a random part needs data that give any image by its number: give arrays, or a "
            "Dataset; of a DataLoader that is its dataset"
        )
    if len(source) and not isinstance(source, InAnyOrder) and not _read(source[0]).is_sample:
        raise ValueError(
            "a random part needs data of single images, but these are batches: give arrays, or a "
            "Dataset of samples"
        )
    return len(source)


def _at(data: Any, places: Tensor) -> Iterator[Any]:
    """Samples or batches of the images at some places, in their order."""
    if is_whole(data):
        whole = _whole(data)
        return (Batch(whole.images[some], whole.labels[some]) for some in places.split(_GATHERED))
    if isinstance(data, InAnyOrder):
        return data.read(places)
    return (data[number] for number in places.tolist())


def _whole(data: Any) -> Batch:
    """All images and labels at once, if only one."""
    read = _read(data)
    return _together([read]) if read.is_sample else _checked(read)


def _checked(batch: Batch) -> Batch:
    images, labels = (part.shape[:1].numel() for part in batch)
    if images != labels:
        raise ValueError(f"a batch has {images} images, but {labels} labels: they must be as many")
    return batch


def is_whole(data: object) -> bool:
    """Whether these are all images and labels at once."""
    if isinstance(data, tuple | list) and len(data) == 2:
        return isinstance(data[0], Tensor | np.ndarray) or _are_listed(*data)
    return isinstance(data, Mapping)


def _are_listed(images: object, labels: object) -> bool:
    """Whether these are a list of images and their labels; two samples have an image each."""
    if not isinstance(images, list | tuple) or not images or not all(map(_is_image, images)):
        return False
    return not any(map(_is_image, labels if isinstance(labels, list | tuple) else ()))


def _is_image(part: object) -> bool:
    """Whether it can be nothing but an image: labels have at most one dimension."""
    if isinstance(part, Tensor | np.ndarray):
        return part.ndim > 1
    return isinstance(part, Image.Image)


def check_alike(one: Tensor, other: Tensor) -> None:
    """Check that two images have one shape, as all have to have."""
    if one.shape != other.shape:
        raise ValueError(
            f"images of shape {tuple(one.shape)} and {tuple(other.shape)} in one data set: resize "
            "or crop them to one size, and convert them to as many channels"
        )


def _items(data: Any) -> Iterator[Any]:
    """Samples or batches, as they were given."""
    if is_whole(data):
        return iter([data])
    if isinstance(data, DataLoader):
        return _collated(data)
    if isinstance(data, InAnyOrder):
        return data.read(torch.arange(len(data)))
    # By number, where that can be: not all that have a length say by an IndexError where they end.
    if isinstance(data, Indexed) and not isinstance(data, IterableDataset):
        return (data[number] for number in range(len(data)))
    return iter(data)


def _collated(loader: DataLoader[Any]) -> Iterator[Any]:
    """Batches of a loader, whose own words for what it cannot put together say little."""
    try:
        yield from loader
    except (RuntimeError, TypeError) as error:
        if "stack expects each tensor to be equal size" in str(error):
            raise ValueError(
                "images of several sizes in one data set: resize or crop them to one size in the "
                "transform of the Dataset"
            ) from error
        if "default_collate" in str(error):
            raise ValueError(
                "the DataLoader cannot put together what its Dataset gives; give evaluate the "
                "Dataset itself, or let a transform of it make tensors"
            ) from error
        raise


def _read(item: Any) -> Batch:
    if isinstance(item, Mapping):
        return _pair(_named(item, _IMAGES), _named(item, _LABELS))
    if not isinstance(item, tuple | list) or len(item) != 2:
        if isinstance(item, str):
            raise ValueError("data are no name: load them first, by upright.data.load_data(NAME)")
        kind = type(item).__name__
        many = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise ValueError(
            f"each batch must be a pair (images, labels), but one is {kind}{many}; map the data to "
            "such pairs"
        )
    return _pair(*item)


def _pair(images: Any, labels: Any) -> Batch:
    """One label for one image may have an axis of its own."""
    batch = Batch(_images(images), _labels(labels))
    alone = batch.images.ndim == 3 and batch.labels.numel() == 1
    return batch._replace(labels=batch.labels.reshape(())) if alone else batch


def _named(item: Mapping[Any, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in item:
            return item[name]
    raise ValueError(
        f"a batch has {', '.join(map(str, item)) or 'nothing'}, but none of {', '.join(names)}; "
        "rename what it has, or map the data to pairs (images, labels)"
    )


def _images(images: Any) -> Tensor:
    if isinstance(images, Image.Image):
        return _picture(images)
    if isinstance(images, list | tuple) and images:
        return _stacked([_images(image) for image in images])
    try:
        return torch.as_tensor(_forwards(images))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"images must be tensors, arrays of numbers or pictures of PIL, but some are "
            f"{_kind(images)}; convert them"
        ) from error


def _labels(labels: Any) -> Tensor:
    try:
        numbers = torch.as_tensor(_forwards(labels))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"labels must be class numbers (int64), but some are {_kind(labels)}; number the "
            "classes from 0, in the order of the model's outputs"
        ) from error
    # PyTorch holds these, and cannot compare them.
    return numbers.long() if numbers.dtype in UNSIGNED else numbers


def _forwards(values: Any) -> Any:
    """Arrays that run backwards as such that do not: PyTorch knows none."""
    backwards = isinstance(values, np.ndarray) and min(values.strides, default=0) < 0
    return values.copy() if backwards else values


def _kind(values: Any) -> str:
    """What could not be read, in a word or two."""
    while isinstance(values, list | tuple) and values:
        values = values[0]
    if isinstance(values, np.ndarray):
        return f"an array of {values.dtype}"
    return f"{values!r:.40}" if isinstance(values, str) else type(values).__name__


def _picture(picture: Image.Image) -> Tensor:
    """A picture as uint8, C x H x W: grey ones have one channel, all others three."""
    pixels = np.atleast_3d(np.array(as_seen(picture)))
    return torch.from_numpy(pixels.transpose(2, 0, 1))


def _together(samples: list[Batch]) -> Batch:
    return Batch(
        _stacked([sample.images for sample in samples]),
        torch.stack([sample.labels for sample in samples]),
    )


def _stacked(images: list[Tensor]) -> Tensor:
    for image in images:
        check_alike(images[0], image)
    return torch.stack(images)
