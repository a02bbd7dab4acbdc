"""Images from a numpy `.npz` file.

The file holds, for each split, `SPLIT_images` and `SPLIT_labels` (such as `test_images`), or plain
`images` and `labels`. Images are uint8, N x H x W x C or N x C x H x W with 1 or 3 channels; labels
are integers, N, counted from 0.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from upright.callers import warn_caller
from upright.checks import SuspiciousInput
from upright.data.images import LabelledImages
from upright.data.packed import PackedArray, check_packing
from upright.data.registry import Request, Split, data_set
from upright.terminal import printable

__all__ = ["read_npz"]

_CHANNELS = (1, 3)
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, UnicodeError),
    *(EOFError, OSError, RuntimeError),
)
_MOST_CLASSES = 1_000_000  # a corrupt label must not ask for billions of class names


def read_npz(
    path: str | Path, *, split: Split = "test", limit: int | None = None
) -> LabelledImages:
    """Read the images and labels of one split; classes are named by their number.

    Args:
        path: Of the `.npz` file.
        split: Which part; plain `images` and `labels` are both.
        limit: Read only so many images, from the first on; None for all. The classes are still
            those of all labels.
    """
    path = Path(path)
    images, labels = _read_pair(path, split, limit)
    classes = tuple(str(label) for label in range(int(labels.max()) + 1))
    pixels = torch.from_numpy(_channels_first(path, images))
    numbers = labels[: len(images)].astype(np.int64)
    return LabelledImages(pixels, torch.from_numpy(numbers), classes)


def _has_parts(location: str) -> bool:
    """Whether train and test are not the plain `images` both; they may be missing altogether."""
    _check_is_npz(Path(location))
    try:
        with zipfile.ZipFile(location) as file:
            names = file.namelist()
    except _DAMAGE as error:
        raise ValueError(f"{location}: damaged ({error}); copy or write it again") from error
    return any(name.startswith(("train_images.", "test_images.")) for name in names)


@data_set("npz:FILE", has_parts=_has_parts, about="arrays images and labels")
def _npz(request: Request) -> LabelledImages:
    return read_npz(request.location, split=request.split, limit=request.limit)


def _check_is_npz(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{printable(str(path))}: no such file; give the path of an .npz file")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not an .npz file; write one with numpy.savez")


def _read_pair(path: Path, split: Split, limit: int | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read as many images as are wanted, and all labels."""
    _check_is_npz(path)
    try:
        with zipfile.ZipFile(path) as file:
            prefix = _prefix(path, split, [name.removesuffix(".npy") for name in file.namelist()])
            images = _array(path, file, f"{prefix}images")
            labels = _array(path, file, f"{prefix}labels")
            _check_images(path, images)
            _check_label_form(path, labels, images.shape[0])
            numbers = labels.read()
            _check_labels(path, numbers)
            return images.read(limit), numbers
    except _DAMAGE as error:
        raise ValueError(f"{path}: damaged ({error}); copy or write it again") from error


def _array(path: Path, file: zipfile.ZipFile, name: str) -> PackedArray:
    check_packing(path, file, name)
    try:
        return PackedArray.find(file, name)
    except _DAMAGE:
        raise
    # A damaged header can make the parser raise nearly anything.
    except Exception as error:
        raise ValueError(
            f"{path}: {name} is not an array of numbers ({error}); save it as uint8 or integers"
        ) from error


def _prefix(path: Path, split: Split, names: list[str]) -> str:
    for prefix in (f"{split}_", ""):
        if f"{prefix}images" in names and f"{prefix}labels" in names:
            return prefix
    other = "test" if split == "train" else "train"
    there = {f"{other}_images", f"{other}_labels"} <= set(names)
    hint = f", or ask for these by --split {other}, in Python split={other!r}" if there else ""
    held = ", ".join(ascii(name)[1:-1] for name in names[:8])  # which are whatever the file says
    raise ValueError(
        f"{path}: holds {held or 'no arrays'};"
        f" give it {split}_images and {split}_labels, or images and labels{hint}"
    )


def _check_images(path: Path, images: PackedArray) -> None:
    if images.dtype != np.uint8:
        raise ValueError(f"{path}: images are {images.dtype}; save them as uint8, 0 to 255")
    if len(images.shape) != 4:
        raise ValueError(
            f"{path}: images have shape {images.shape}; save them as N x H x W x C"
            " (grey images with a last axis of 1)"
        )
    if 0 in images.shape:
        raise ValueError(f"{path}: images have shape {images.shape}; save at least one image")


def _check_label_form(path: Path, labels: PackedArray, images: int) -> None:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{path}: labels are {labels.dtype}; save them as integers")
    if labels.shape != (images,):
        raise ValueError(
            f"{path}: {images} images, but labels of shape {labels.shape}; save one label an image"
        )


def _check_labels(path: Path, labels: NDArray[Any]) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= _MOST_CLASSES:
        raise ValueError(f"{path}: labels run from {low} to {high}; number the classes from 0")
    if low == 1 < high == len(np.unique(labels)):
        message = f"{path}: labels run from 1 to {high}, so class 0 has no image; number from 0"
        warn_caller(message, SuspiciousInput)


def _channels_first(path: Path, images: NDArray[Any]) -> NDArray[Any]:
    first, last = images.shape[1] in _CHANNELS, images.shape[3] in _CHANNELS
    if first and last:
        raise ValueError(
            f"{path}: in shape {images.shape} the channels may be axis 1 or axis 3;"
            " crop or pad the images so that no side is 1 or 3 pixels"
        )
    if not first and not last:
        raise ValueError(
            f"{path}: shape {images.shape} has no axis of channels;"
            " save N x H x W x C with C 1 or 3"
        )
    return np.ascontiguousarray(images if first else images.transpose(0, 3, 1, 2))
