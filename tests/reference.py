"""Geometry written a second and a third time, to hold the package's own against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Array = npt.NDArray[np.float64]
Fill = Literal["black", "reflection", "border"]

# "grid-constant" interpolates between the border and the black around it; "constant" does not.
_SCIPY_MODES: dict[Fill, Any] = {
    "black": "grid-constant",
    "reflection": "reflect",
    "border": "nearest",
}


def matrix(dx: float, dy: float, angle: float) -> Array:
    """A pose as a 3 x 3 matrix on (x right, y down, 1), relative to the image's centre."""
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
    shift = np.array([[1, 0, dx], [0, 1, dy], [0, 0, 1]])
    return np.asarray(shift @ turn)


def scipy_warp(
    image: Array,
    dx: float,
    dy: float,
    angle: float,
    fill: Fill = "black",
    colour: Sequence[float] | None = None,
) -> Array:
    """Move a C x H x W image, bilinear; with ``black`` a colour, a level for each channel, may be
    what lies around it."""
    height, width = image.shape[1:]
    to_centre = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1]])
    back = np.linalg.inv(to_centre) @ np.linalg.inv(matrix(dx, dy, angle)) @ to_centre
    rows_first = back[[1, 0, 2]][:, [1, 0, 2]]
    mode = _SCIPY_MODES[fill]
    moved = [
        ndimage.affine_transform(part, rows_first, order=1, mode=mode, cval=level)
        for part, level in zip(image, colour or [0.0] * len(image), strict=True)
    ]
    return np.stack(moved)


def loop_warp(
    image: Sequence[Sequence[float]],
    dx: float,
    dy: float,
    angle: float,
    fill: Fill,
    interpolation: str,
    level: float = 0.0,
) -> list[list[float]]:
    """Move an H x W image, pixel by pixel; with ``black``, a level may lie around it."""
    height, width = len(image), len(image[0])
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    moved = [[level] * width for _ in range(height)]
    for row in range(height):
        for column in range(width):
            # Pixel centres lie at half-integers; undo the translation, then the rotation.
            x, y = column + 0.5 - width / 2 - dx, row + 0.5 - height / 2 - dy
            from_x = cos * x - sin * y + width / 2 - 0.5
            from_y = sin * x + cos * y + height / 2 - 0.5
            for index_y, weight_y in _taps(from_y, height, fill, interpolation):
                for index_x, weight_x in _taps(from_x, width, fill, interpolation):
                    beyond = image[index_y][index_x] - level
                    moved[row][column] += weight_y * weight_x * beyond
    return moved


def _taps(position: float, size: int, fill: Fill, interpolation: str) -> list[tuple[int, float]]:
    """The pixels that a position reads along one axis, and their weights."""
    if interpolation == "nearest":
        taps = [(round(position), 1.0)]
    else:
        low = math.floor(position)
        reach = range(low, low + 2) if interpolation == "bilinear" else range(low - 1, low + 3)
        kernel = _tent if interpolation == "bilinear" else _cubic
        taps = [(index, kernel(abs(position - index))) for index in reach]
    if fill == "black":
        return [(index, weight) for index, weight in taps if 0 <= index < size]
    return [(_inside(index, size, fill), weight) for index, weight in taps]


def _inside(index: int, size: int, fill: Fill) -> int:
    if fill == "border":
        return min(max(index, 0), size - 1)
    index %= 2 * size
    return index if index < size else 2 * size - 1 - index


def _tent(distance: float) -> float:
    return max(0.0, 1 - distance)


def _cubic(distance: float, a: float = -0.75) -> float:
    """Keys' cubic convolution."""
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    if distance < 2:
        return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return 0.0
