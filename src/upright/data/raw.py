"""One split as arrays, and its SHA-256 digests: in its order, and whatever its order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from upright.data.registry import AnySplit

__all__ = ["RawSplit", "array_names", "content_digest", "split_digests"]

_IMAGES_AT_ONCE = 1_000


@dataclass(frozen=True, eq=False)
class RawSplit:
    """Images (uint8, N x 3 x 32 x 32) and labels (int64, N), in the order of their files."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def array_names(split: AnySplit) -> tuple[str, str]:
    """What the arrays of a split are called: its images and its labels."""
    return f"{split}_images", f"{split}_labels"


def split_digests(split: AnySplit, raw: RawSplit) -> dict[str, str]:
    """SHA-256 of the images as N x 32 x 32 x 3 and of the labels, by array name.

    Labels are bytes where all of them fit, and else int64.
    """
    images, labels = hashlib.sha256(), hashlib.sha256(_bytes(raw.labels))
    for piece in _pieces(raw.images):
        images.update(piece.data)
    sums = (images.hexdigest(), labels.hexdigest())
    return dict(zip(array_names(split), sums, strict=True))


def content_digest(raw: RawSplit) -> str:
    """SHA-256 of the sorted SHA-256 digests of all images, each with its label behind it."""
    labels = _bytes(raw.labels)
    width = len(labels) // max(1, len(raw.labels))
    images = (image for piece in _pieces(raw.images) for image in piece)
    each = (
        hashlib.sha256(image.tobytes() + labels[width * place : width * (place + 1)]).digest()
        for place, image in enumerate(images)
    )
    return hashlib.sha256(b"".join(sorted(each))).hexdigest()


def _bytes(labels: NDArray[np.int64]) -> bytes:
    fit = len(labels) == 0 or (labels.min() >= 0 and labels.max() < 256)
    return labels.astype(np.uint8 if fit else "<i8").tobytes()


def _pieces(images: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """N x 32 x 32 x 3 in pieces: that order of axes for a whole set would take its memory twice."""
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        piece = images[start : start + _IMAGES_AT_ONCE].transpose(0, 2, 3, 1)
        yield np.ascontiguousarray(piece)
