"""A photograph of a house number: its wall, its colours, the light, and what the camera adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, sin, sqrt, tau
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

__all__ = ["Photo", "expose"]

Array = NDArray[np.floating[Any]]
Pattern = Callable[[int, np.random.Generator], Array]  # of a wall, size x size, from -1 to 1

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True)
class Photo:
    """Everything about an image but the shape of its digits; colours are RGB in [0, 1].

    Attributes:
        ink: Colour of the digits.
        wall: Mean colour of the wall.
        pattern: What the wall is made of, a function of `_PATTERNS`.
        relief: Largest deviation of the wall from its colour.
        shade: Largest relative change of the light across the image.
        blur: Radius in pixels.
        noise: Standard deviation of a pixel.
    """

    ink: Array
    wall: Array
    pattern: Pattern
    relief: float
    shade: float
    blur: float
    noise: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Photo:
        """Draw everything at random."""
        contrast = rng.uniform(0.3, 0.75)
        dark = rng.uniform(0.1, 0.95 - contrast)
        bright = dark + contrast
        ink, wall = (dark, bright) if rng.random() < 0.5 else (bright, dark)
        return cls(
            ink=_colour(rng, ink, tint=0.25),
            wall=_colour(rng, wall, tint=0.12),
            pattern=_PATTERNS[rng.integers(len(_PATTERNS))],
            relief=rng.uniform(0, 0.5) * contrast,
            shade=rng.uniform(0, 0.3),
            blur=rng.uniform(0.3, 1.3),
            noise=rng.uniform(0, 0.05),
        )


def expose(coverage: Array, photo: Photo, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The image of digits that cover each pixel as told: uint8, H x W x 3."""
    size = coverage.shape[0]
    wall = photo.wall + (photo.relief * photo.pattern(size, rng))[..., None]
    scene = wall + coverage[..., None] * (photo.ink - wall)
    scene *= (1 + photo.shade * _gradient(size, rng))[..., None]
    picture = Image.fromarray(_to_bytes(scene)).filter(ImageFilter.GaussianBlur(photo.blur))
    noise = rng.standard_normal(scene.shape, np.float32)
    return _to_bytes(np.asarray(picture, np.float32) / 255 + photo.noise * noise)


def _to_bytes(image: Array) -> NDArray[np.uint8]:
    return (image.clip(0, 1) * 255 + 0.5).astype(np.uint8)


def _colour(rng: np.random.Generator, luma: float, *, tint: float) -> Array:
    """A random colour of the given brightness, its channels about `tint` away from grey."""
    offsets = tint * (2 * rng.random(3, np.float32) - 1)
    return luma + offsets - offsets @ _LUMA


def _plain(size: int, _: np.random.Generator) -> Array:
    return np.zeros((size, size), np.float32)


def _gradient(size: int, rng: np.random.Generator) -> Array:
    direction = rng.uniform(0, tau)
    axis = (2 * np.arange(size, dtype=np.float32) + 1) / size - 1
    return (axis * cos(direction) + axis[:, None] * sin(direction)) / sqrt(2)


def _blotches(size: int, rng: np.random.Generator) -> Array:
    cells = int(rng.integers(3, 12))
    coarse = Image.fromarray(rng.uniform(-1, 1, (cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC)).clip(-1, 1)


def _planks(size: int, rng: np.random.Generator) -> Array:
    period = int(rng.integers(4, 13))
    seams = (np.arange(size) + rng.integers(period)) % period == 0
    rows = np.broadcast_to(seams[:, None], (size, size))
    return _seams(rows if rng.random() < 0.5 else rows.T)


def _bricks(size: int, rng: np.random.Generator) -> Array:
    height = int(rng.integers(4, 10))
    row, column = np.arange(size) + rng.integers(height), np.arange(size)
    shifted = column + (row // height % 2)[:, None] * height
    return _seams((row % height == 0)[:, None] | (shifted % (2 * height) == 0))


def _seams(where: NDArray[np.bool_]) -> Array:
    return np.where(where, np.float32(-1), np.float32(0.2))


_PATTERNS = (_plain, _gradient, _blotches, _planks, _bricks)
