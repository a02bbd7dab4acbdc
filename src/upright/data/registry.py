"""The data sets by name, and `load_data`, which reads one of them.

A name stands alone (`glyphs`) or before a place (`npz:FILE`, `folder:DIR`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from upright.checks import warn_if_one_class
from upright.data.images import LabelledImages
from upright.registry import Registry, UnknownNameError

__all__ = [
    "DATA_SETS",
    "AnySplit",
    "Reader",
    "Request",
    "Split",
    "can_resize",
    "count_held_out",
    "data_names",
    "data_set",
    "has_parts",
    "load_data",
]

Split = Literal["train", "test"]
"""Which part of a data set, as its files have it."""
AnySplit = Literal["train", "test", "held-out", "kept"]
"""The same; or `held-out`, a tenth of `train` that is drawn once and for all, to choose by where
the test set must not be looked at, or `kept`, the rest of `train`."""


@dataclass(frozen=True)
class Request:
    """What is asked of a data set; a reader uses what applies to it.

    Attributes:
        location: The place after the colon; empty for a name that stands alone.
        split: Which part of the data.
        limit: At most this many images, from the first on; None for all.
        seed: Of data that is made, not read.
        resize: Shorter side in pixels, before the crop; None to keep the size.
        center_crop: Side in pixels of the central square; None for no crop.
    """

    location: str = ""
    split: Split = "test"
    limit: int | None = None
    seed: int = 0
    resize: int | None = None
    center_crop: int | None = None


Reader = Callable[[Request], LabelledImages]
"""What a data set is: a function that answers requests."""


@dataclass(frozen=True)
class _DataSet:
    usage: str
    read: Reader
    resizes: bool
    has_parts: Callable[[str], bool]

    @property
    def placeholder(self) -> str:
        return self.usage.partition(":")[2]


DATA_SETS: Registry[_DataSet] = Registry("data set", code_of=lambda known: known.read)
"""What answers requests, by the name before the colon."""


def data_set(
    usage: str,
    *,
    resizes: bool = False,
    has_parts: Callable[[str], bool] = lambda _: True,
    about: str = "",
) -> Callable[[Reader], Reader]:
    """Register a reader as `name`, or as `name:PLACE` where it needs to be told a place.

    Args:
        usage: As people type it and as messages list it, such as `glyphs` or `npz:FILE`.
        resizes: Whether the reader honours `resize` and `center_crop`.
        has_parts: Whether the data at a place have a part for each split, and not one for both.
        about: What help says of it.
    """

    def register(read: Reader) -> Reader:
        # With or without a place: who forgets it is told how the name is written.
        pattern = f"{re.escape(usage.partition(':')[0])}(?::((?s:.*)))?"
        DATA_SETS.register(usage, pattern, about=about)(_DataSet(usage, read, resizes, has_parts))
        return read

    return register


def data_names() -> tuple[str, ...]:
    """What `load_data` understands, sorted, such as `glyphs` and `npz:FILE`."""
    return tuple(DATA_SETS)


def has_parts(name: str) -> bool:
    """Whether train and test are different images of the data set that `load_data` reads so."""
    known, location = _find(name)
    return known.has_parts(location)


def can_resize(name: str) -> bool:
    """Whether a data set by name comes in any size, which `resize` and `center_crop` make one."""
    return _find(name)[0].resizes


def load_data(
    name: str,
    *,
    split: AnySplit = "test",
    limit: int | None = None,
    seed: int = 0,
    resize: int | None = None,
    center_crop: int | None = None,
) -> LabelledImages:
    """Read the data set called `name`: one of `data_names()`, the place filled in.

    Args:
        name: Such as `glyphs`, `npz:cifar10.npz` or `folder:photos/val`.
        split: Which part; of data that have no parts, it is all of them.
        limit: At most this many images, from the first on; None for all.
        seed: Of data that is made, not read.
        resize: Shorter side in pixels, for data that comes in any size.
        center_crop: Side in pixels of the central square, cut after resizing.

    >>> load_data("glyphs", limit=5)
    LabelledImages(5 x 3 x 32 x 32, 10 classes)
    """
    if split not in get_args(AnySplit):
        raise ValueError(f"no split is called {split!r}: choose {', '.join(get_args(AnySplit))}")
    if limit is not None and limit < 1:
        raise ValueError(f"a limit of {limit} leaves no image: give at least 1, or None for all")
    if split == "held-out" or split == "kept":
        whole = _load(name, "train", None, seed, resize, center_crop)
        part = _part_of_training(whole, held_out=split == "held-out")
        return part if limit is None else part.head(limit)
    return _load(name, split, limit, seed, resize, center_crop)


def _load(
    name: str,
    split: Split,
    limit: int | None,
    seed: int,
    resize: int | None,
    center_crop: int | None,
) -> LabelledImages:
    known, location = _find(name)
    if not known.resizes and (resize is not None or center_crop is not None):
        able = ", ".join(form for form, other in DATA_SETS.items() if other.resizes)
        raise ValueError(f"{known.usage} has images of one size: resize and crop only {able}")
    data = known.read(Request(location, split, limit, seed, resize, center_crop))
    if not isinstance(data, LabelledImages):
        raise ValueError(
            f"{known.usage} gives a {type(data).__name__}; let its reader return LabelledImages"
        )
    if limit is not None and len(data) > limit:
        data = data.head(limit)  # whose reader gives all of them whatever is asked
    if len(data) == limit and len(data.classes) > 1:
        warn_if_one_class(set(data.labels.unique().tolist()), len(data))
    return data


def count_held_out(images: int) -> int:
    """How many of so many training images are held out."""
    return images // 10


def _part_of_training(data: LabelledImages, *, held_out: bool) -> LabelledImages:
    """Give the tenth that is held out, or the rest; each in the order that the images have."""
    count = count_held_out(len(data))
    if not count:
        raise ValueError(f"{len(data)} training images have no tenth to hold out: give 10 or more")
    drawn = torch.randperm(len(data), generator=torch.Generator().manual_seed(_HELD_OUT_SEED))
    rows = (drawn[:count] if held_out else drawn[count:]).sort().values
    return data.take(rows)


_HELD_OUT_SEED = 0


def _find(name: str) -> tuple[_DataSet, str]:
    try:
        found = DATA_SETS.find(name)
    except UnknownNameError as error:
        if Path(name).is_dir():
            raise UnknownNameError(f"{name} is a folder: write folder:{name}") from error
        if Path(name).suffix == ".npz":
            raise UnknownNameError(f"{name} is a file: write npz:{name}") from error
        raise
    known, location = found.value, found.groups[0] or ""
    if bool(location) != bool(known.placeholder):
        raise ValueError(f"{name!r} is not how this data set is written: write {known.usage}")
    return known, location
