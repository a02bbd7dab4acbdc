"""One split as arrays, its SHA-256 digests, and the question whether it is what it should be."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upright.data.known import IMAGE_SHAPE, KNOWN, KnownSet
from upright.data.registry import Split

__all__ = ["RawSplit", "find_fault", "split_digests"]

_IMAGES_AT_ONCE = 1_000


@dataclass(frozen=True, eq=False)
class RawSplit:
    """Images (uint8, N x 3 x 32 x 32) and labels (int64, N) in the official order."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def split_digests(split: Split, raw: RawSplit) -> dict[str, str]:
    """SHA-256 of the images as N x 32 x 32 x 3 and of the labels as uint8, by array name."""
    return {
        f"{split}_images": _sum_of_images(raw.images),
        f"{split}_labels": hashlib.sha256(raw.labels.astype(np.uint8).tobytes()).hexdigest(),
    }


def find_fault(known: KnownSet, split: Split, raw: RawSplit) -> str | None:
    """What tells these arrays from the known set's split; None where they are the same."""
    wrong_form = _fault_of_form(known, split, raw)
    if wrong_form is not None:
        return wrong_form
    for name, found in split_digests(split, raw).items():
        if found != known.digests[name]:
            return f"{name} are not those of {known.name}{_whose(name, found)}"
    return None


def _fault_of_form(known: KnownSet, split: Split, raw: RawSplit) -> str | None:
    images, labels = raw.images, raw.labels
    if images.dtype != np.uint8 or images.shape[1:] != IMAGE_SHAPE:
        shape = " x ".join(map(str, images.shape[1:]))
        return f"{split}_images are {shape} {images.dtype}, not 3 x 32 x 32 uint8"
    for name, array in (("images", images), ("labels", labels)):
        if len(array) != known.counts[split]:
            return f"{split} has {len(array)} {name}, {known.name} has {known.counts[split]}"
    if labels.min() < 0 or labels.max() >= len(known.classes):
        return f"{split}_labels run from {labels.min()} to {labels.max()}, not over the classes"
    return None


def _whose(name: str, digest: str) -> str:
    return "".join(f" but of {k.name}" for k in KNOWN.values() if k.digests[name] == digest)


def _sum_of_images(images: NDArray[Any]) -> str:
    """In pieces: the other order of axes for a whole set would take its memory twice."""
    total = hashlib.sha256()
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        piece = images[start : start + _IMAGES_AT_ONCE].transpose(0, 2, 3, 1)
        total.update(np.ascontiguousarray(piece).data)
    return total.hexdigest()
