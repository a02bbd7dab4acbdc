"""Glyphs: ten digits in the manner of house numbers, 32 x 32 RGB, made in seconds.

Nothing is fetched: the digits come from the fonts that matplotlib ships. Font, size, colours,
wall, neighbouring digits, blur, noise and light are drawn for each image, and so is the pose of the
number, uniform within a `Spread`. The paper's Theorem 2 is about that spread: where it fills the
box of transformations (`WIDE`), a classifier of least natural loss has to be invariant as well.

`python -m upright.data.glyphs OUT.png` draws a contact sheet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from upright.data.glyphs.number import SIDE, Number, coverage
from upright.data.glyphs.photo import Photo, expose
from upright.data.images import LabelledImages
from upright.data.registry import Request, Split, data_set

__all__ = ["MILD", "NONE", "WIDE", "Spread", "glyphs"]

_STREAMS: dict[Split, int] = {"train": 0, "test": 1}
_COUNTS: dict[Split, int] = {"train": 20_000, "test": 2_000}
_CLASSES = tuple("0123456789")


@dataclass(frozen=True)
class Spread:
    """How far the digits themselves turn and move: each draw is uniform from -max to +max.

    Attributes:
        max_rotation: In degrees, 0 to 180; from 90 on, a 6 can no longer be told from a 9.
        max_shift: In pixels, 0 to 16, in x and in y.
    """

    max_rotation: float
    max_shift: float

    def __post_init__(self) -> None:
        if not 0 <= self.max_rotation <= 180:
            raise ValueError(f"max_rotation is {self.max_rotation}: give 0 to 180 degrees")
        if not 0 <= self.max_shift <= SIDE / 2:
            raise ValueError(f"max_shift is {self.max_shift}: give 0 to {SIDE // 2} pixels")


NONE = Spread(max_rotation=0, max_shift=0)
"""All digits upright and in the middle: `glyphs-none`."""
MILD = Spread(max_rotation=10, max_shift=2)
"""About what house numbers in photographs have: `glyphs`."""
WIDE = Spread(max_rotation=30, max_shift=3)
"""The paper's whole box of transformations: `glyphs-wide`."""


def glyphs(
    count: int, *, seed: int = 0, spread: Spread = MILD, split: Split = "train"
) -> LabelledImages:
    """Make `count` images; a larger count begins with the images of a smaller one.

    Image i depends on the seed, the split, i and the spread alone. The spread scales the pose and
    changes nothing else: with two spreads, image i has the same font, colours and noise.

    Args:
        count: How many images, at least 1.
        seed: From 0 to 2**32 - 1.
        spread: Limits of the pose of the digits.
        split: `train` and `test` are drawn from streams that share no number.
    """
    if count < 1:
        raise ValueError(f"{count} glyphs asked for: ask for at least 1")
    if not 0 <= seed < 2**32:
        raise ValueError(f"the seed is {seed}: give 0 to 2**32 - 1")
    pixels = np.empty((count, SIDE, SIDE, 3), np.uint8)
    labels = np.empty(count, np.int64)
    for index in range(count):
        rng = np.random.default_rng([seed, _STREAMS[split], index])
        number = Number.draw(rng, spread.max_rotation, spread.max_shift)
        pixels[index] = expose(coverage(number), Photo.draw(rng), rng)
        labels[index] = number.digit
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return LabelledImages(images, torch.from_numpy(labels), _CLASSES)


def _asked(request: Request, spread: Spread) -> LabelledImages:
    count = _COUNTS[request.split] if request.limit is None else request.limit
    return glyphs(count, seed=request.seed, spread=spread, split=request.split)


@data_set("glyphs", about="digits that are drawn here, turned and shifted a little")
def _mild(request: Request) -> LabelledImages:
    return _asked(request, MILD)


@data_set("glyphs-none", about="the same, all upright")
def _none(request: Request) -> LabelledImages:
    return _asked(request, NONE)


@data_set("glyphs-wide", about="the same, turned and shifted as far as in the paper")
def _wide(request: Request) -> LabelledImages:
    return _asked(request, WIDE)
