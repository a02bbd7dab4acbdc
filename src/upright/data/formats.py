"""Readers of the official files of CIFAR-10, CIFAR-100 and SVHN.

Each takes the files of one split and gives its arrays. What they cannot read they name in a
ValueError; whether the pixels are the right ones is for the digests to say.

- Pickles: a dictionary with `data` (uint8, N x 3072, planes of red, green, blue) and `labels`, or
  `fine_labels` for CIFAR-100.
- Binary: one record an image, the label's byte (CIFAR-100: the coarse one, then the fine one) and
  3072 bytes of planes.
- MATLAB: `X` (uint8, 32 x 32 x 3 x N) and `y` (N x 1), in which 10 stands for the digit 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from upright.data.known import IMAGE_SHAPE, FileKind
from upright.data.mat import read_mat
from upright.data.mosaics import read_mosaics, read_strips
from upright.data.raw import RawSplit
from upright.data.unpickle import read_pickle

__all__ = ["read_files"]

_VALUES = 3 * 32 * 32


def read_files(kind: FileKind, files: Sequence[Path]) -> RawSplit:
    """The split that these files, in this order, hold."""
    return _READERS[kind](files)


def _joined(read: Callable[[Path], RawSplit], files: Sequence[Path]) -> RawSplit:
    parts = [read(file) for file in files]
    return RawSplit(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


def _read_batch(path: Path) -> RawSplit:
    batch = read_pickle(path)
    if not isinstance(batch, dict):
        raise ValueError(f"{path.name} is not a CIFAR batch: it holds no dictionary")
    entries = {_text(key): value for key, value in batch.items()}
    data = entries.get("data")
    labels = entries.get("fine_labels", entries.get("labels"))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_VALUES,):
        raise ValueError(f"{path.name} is not a CIFAR batch: it has no `data` of uint8, N x 3072")
    return RawSplit(data.reshape(-1, *IMAGE_SHAPE), _labels(path, labels, len(data)))


def _text(key: object) -> object:
    return key.decode("latin1") if isinstance(key, bytes) else key


def _labels(path: Path, labels: object, count: int) -> NDArray[np.int64]:
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError(f"{path.name} is not a CIFAR batch: it has no list of labels")
    if len(labels) != count:
        raise ValueError(f"{path.name} has {count} images, but {len(labels)} labels")
    return np.asarray(labels, dtype=np.int64)


def _read_records(path: Path, *, label_bytes: int) -> RawSplit:
    record = label_bytes + _VALUES
    size = path.stat().st_size
    if size == 0 or size % record:
        raise ValueError(
            f"{path.name} is truncated or not a CIFAR binary: {size} bytes are no whole number of"
            f" records of {record}"
        )
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, *IMAGE_SHAPE)
    return RawSplit(images, records[:, label_bytes - 1].astype(np.int64))


def _read_mat(path: Path) -> RawSplit:
    try:
        arrays = read_mat(path)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{path.name} is truncated or not a MATLAB file: {error}") from error
    images, labels = arrays.get("X"), arrays.get("y")
    if images is None or labels is None or images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(f"{path.name} is not SVHN: no `X` of uint8, 32 x 32 x 3 x N, with `y`")
    if labels.size != images.shape[3]:
        raise ValueError(f"{path.name} has {images.shape[3]} images, but {labels.size} labels")
    digits = labels.reshape(-1).astype(np.int64)
    return RawSplit(
        np.ascontiguousarray(images.transpose(3, 2, 0, 1)), np.where(digits == 10, 0, digits)
    )


_READERS: Mapping[FileKind, Callable[[Sequence[Path]], RawSplit]] = {
    "pickle": partial(_joined, _read_batch),
    "binary": partial(_joined, partial(_read_records, label_bytes=1)),
    "binary-coarse-fine": partial(_joined, partial(_read_records, label_bytes=2)),
    "mat": partial(_joined, _read_mat),
    "strips": read_strips,
    "mosaics": read_mosaics,
}
