"""A house number without its colours: its digits, font and pose, and the pixels they cover."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, cos, radians, sin
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

__all__ = ["FONTS", "SIDE", "Number", "coverage"]

SIDE = 32  # px of an image

# Of the fonts that matplotlib ships, those whose digits are all of one height and read as digits.
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
    "cmb10",
    "cmr10",
    "cmss10",
    "cmtt10",
)

_STENCIL_HEIGHT = (
    48  # px of a digit as it is kept, about the largest that is ever drawn, twice over
)
_STRIP = (208, 64)  # px, room for three stencils side by side
_OVERSAMPLING = 2  # a digit is drawn at twice the size and averaged, which keeps its edges smooth
_NEIGHBOUR_CHANCE = 0.5


@dataclass(frozen=True)
class Number:
    """A digit in the middle, neighbours or none beside it, and the pose of the whole.

    Attributes:
        height: Of the digits, in pixels.
        stretch: Width relative to the font's own.
        spacing: Between the digits, relative to their height.
        dx: Pixels to the right of the image's centre.
        dy: Pixels below it.
        angle: Degrees counter-clockwise as displayed.
    """

    digit: int
    left: int | None
    right: int | None
    font: str
    height: float
    stretch: float
    spacing: float
    dx: float
    dy: float
    angle: float

    @classmethod
    def draw(cls, rng: np.random.Generator, max_rotation: float, max_shift: float) -> Number:
        """Draw everything; limits (degrees, pixels) scale the pose and leave the rest as it is."""
        digit, left, right = (int(value) for value in rng.integers(10, size=3))
        has_left, has_right = rng.random(2) < _NEIGHBOUR_CHANCE
        x, y, turn = rng.uniform(-1, 1, size=3)
        return cls(
            digit=digit,
            left=left if has_left else None,
            right=right if has_right else None,
            font=FONTS[rng.integers(len(FONTS))],
            height=rng.uniform(19, 26),
            stretch=rng.uniform(0.8, 1.1),
            spacing=rng.uniform(0.2, 0.4),
            dx=x * max_shift,
            dy=y * max_shift,
            angle=turn * max_rotation,
        )


def coverage(number: Number) -> NDArray[np.floating[Any]]:
    """How much of each pixel the digits cover, 0 to 1, SIDE x SIDE."""
    size = (SIDE * _OVERSAMPLING, SIDE * _OVERSAMPLING)
    mask = _strip(number).transform(
        size, Image.Transform.AFFINE, _strip_from_image(number), Image.Resampling.BILINEAR
    )
    return np.asarray(mask.reduce(_OVERSAMPLING), np.float32) / 255


def _strip(number: Number) -> Image.Image:
    """The digits side by side, the middle one in the centre, at stencil size and without a pose."""
    strip = Image.new("L", _STRIP)
    middle = _stencil(number.font, number.digit)
    start = (_STRIP[0] - middle.width) // 2
    gap = round(number.spacing * _STENCIL_HEIGHT)
    _paste(strip, middle, start)
    if number.left is not None:
        stencil = _stencil(number.font, number.left)
        _paste(strip, stencil, start - gap - stencil.width)
    if number.right is not None:
        _paste(strip, _stencil(number.font, number.right), start + middle.width + gap)
    return strip


def _paste(strip: Image.Image, stencil: Image.Image, left: int) -> None:
    strip.paste(stencil, (left, (strip.height - stencil.height) // 2))


def _strip_from_image(number: Number) -> tuple[float, float, float, float, float, float]:
    """Pillow's affine coefficients: from the oversampled image to the strip it is drawn from."""
    scale = _STENCIL_HEIGHT / (number.height * _OVERSAMPLING)
    cosine, sine = cos(radians(number.angle)), sin(radians(number.angle))
    a, b = cosine * scale / number.stretch, -sine * scale / number.stretch
    d, e = sine * scale, cosine * scale
    x = (SIDE / 2 + number.dx) * _OVERSAMPLING
    y = (SIDE / 2 + number.dy) * _OVERSAMPLING
    return a, b, _STRIP[0] / 2 - a * x - b * y, d, e, _STRIP[1] / 2 - d * x - e * y


@cache
def _stencil(font: str, digit: int) -> Image.Image:
    """A white digit on black, cut to its ink, about `_STENCIL_HEIGHT` px high in every font."""
    size = 2 * _STENCIL_HEIGHT
    return _ink(font, digit, size * _STENCIL_HEIGHT / _ink(font, 8, size).height)


def _ink(font: str, digit: int, size: float) -> Image.Image:
    # Imported here: only its folder of fonts is wanted, and only when glyphs are drawn.
    import matplotlib

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    # The basic layout is the same with and without the optional library for complex scripts.
    face = ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (ceil(2 * size), ceil(2 * size)))
    ImageDraw.Draw(canvas).text((size / 2, size / 2), str(digit), fill=255, font=face)
    # A font's own box of a digit includes the white space beside it, which would put it off centre.
    return canvas.crop(canvas.getbbox())
