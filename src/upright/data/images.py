"""What every data set is once it has been read: images, labels and the names of the classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

__all__ = ["LabelledImages"]


_AT_ONCE = 512


@dataclass(frozen=True, eq=False, repr=False)
class LabelledImages(Dataset[tuple[Tensor, int]]):
    """Images (uint8, N x C x H x W) with labels (int64, N) that index `classes`.

    Images stay uint8, a quarter of the memory of float32. An item, as a `DataLoader` asks for it,
    is a float32 image in [0, 1] and its label.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_images(self.images)
        _check_labels(self.labels, len(self.images), len(self.classes))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return _to_float(self.images[index]), int(self.labels[index])

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.images.shape)
        return f"LabelledImages({shape}, {len(self.classes)} classes)"

    def head(self, count: int) -> LabelledImages:
        """The first `count` images, or all of them where there are fewer. Shares their memory."""
        if count < 1:
            raise ValueError(f"head({count}) holds no image: ask for at least 1")
        return LabelledImages(self.images[:count], self.labels[:count], self.classes)

    def take(self, places: Tensor) -> LabelledImages:
        """The images at these places, in their order, as a copy."""
        return LabelledImages(self.images[places], self.labels[places], self.classes)

    def relabelled(self, labels: Tensor, classes: tuple[str, ...]) -> LabelledImages:
        """The same images with other labels, which index other classes. Shares their memory."""
        return LabelledImages(self.images, labels, classes)

    def read(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the images at these places, in their order, and their labels, in batches."""
        for some in places.split(_AT_ONCE):
            yield self.images[some], self.labels[some]

    def digest(self) -> str:
        """SHA-256 of all images and labels."""
        digest = hashlib.sha256()
        for part in (self.images, self.labels):
            digest.update(part.cpu().numpy().tobytes())
        return digest.hexdigest()

    def as_float(self) -> Tensor:
        """All images as float32 in [0, 1]: four times the memory of `images`."""
        return _to_float(self.images)


def _to_float(images: Tensor) -> Tensor:
    return images.to(torch.float32) / 255


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8:
        raise ValueError(f"images are {images.dtype}: give torch.uint8, 0 to 255")
    if images.ndim != 4:
        raise ValueError(f"images have shape {tuple(images.shape)}: give N x C x H x W")
    if images.numel() == 0:
        raise ValueError(f"images have shape {tuple(images.shape)}: give at least one image")
    if not images.is_contiguous():
        raise ValueError("images are not contiguous in memory: give images.contiguous()")


def _check_labels(labels: Tensor, images: int, classes: int) -> None:
    if labels.dtype != torch.int64:
        raise ValueError(f"labels are {labels.dtype}: give torch.int64")
    if labels.shape != (images,):
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} for {images} images: give one label an image"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels run from {low} to {high}, but {classes} classes have labels 0 to"
            f" {classes - 1}: number the classes from 0 and name each of them in `classes`"
        )
