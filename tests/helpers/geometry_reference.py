"""Geometry written a second and a third time, to hold the package's own against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from scipy.spatial.transform import Rotation

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
    parts = [("shift", (dx, dy)), ("rotate", (angle,))]
    return loop_resample(image, undone(parts, (height, width)), fill, interpolation, level)


Source = Callable[[Any, Any], tuple[Any, Any]]
"""Where what is shown at x, y comes from, both relative to the centre, y down."""


def undone(parts: Sequence[tuple[str, Sequence[float]]], size: tuple[int, int]) -> Source:
    """Undo families one after another, in the order of a text: the last one is undone last."""

    def source(x: Any, y: Any) -> tuple[Any, Any]:
        for name, values in parts:
            x, y = SOURCES[name](x, y, values, size)
        return x, y

    return source


def _unturned(x: Any, y: Any, values: Sequence[float], _: tuple[int, int]) -> tuple[Any, Any]:
    cos, sin = math.cos(math.radians(values[0])), math.sin(math.radians(values[0]))
    return cos * x - sin * y, sin * x + cos * y


def _unsheared(x: Any, y: Any, values: Sequence[float], _: tuple[int, int]) -> tuple[Any, Any]:
    """The solution of x = u - tan(a) v and y = v - tan(b) u."""
    a, b = (math.tan(math.radians(value)) for value in values)
    return (x + a * y) / (1 - a * b), (y + b * x) / (1 - a * b)


def _untilted(x: Any, y: Any, values: Sequence[float], size: tuple[int, int]) -> tuple[Any, Any]:
    height, width = size
    nearer = 1 - values[0] * x / (width / 2) - values[1] * y / (height / 2)
    return x / nearer, y / nearer


SOURCES: dict[str, Callable[[Any, Any, Sequence[float], tuple[int, int]], tuple[Any, Any]]] = {
    "shift": lambda x, y, values, _: (x - values[0], y - values[1]),
    "rotate": _unturned,
    "zoom": lambda x, y, values, _: (x / math.exp(values[0]), y / math.exp(values[0])),
    "stretch": lambda x, y, values, _: (x / math.exp(values[0]), y / math.exp(values[1])),
    "shear": _unsheared,
    "perspective": _untilted,
}
"""Of each family that moves points: where a point comes from."""


def scipy_resample(image: Array, source: Source, fill: Fill = "black", order: int = 1) -> Array:
    """Look at a C x H x W image through a map."""
    height, width = image.shape[1:]
    y, x = np.mgrid[:height, :width].astype(np.float64)
    from_x, from_y = source(x - (width - 1) / 2, y - (height - 1) / 2)
    places = from_y + (height - 1) / 2, from_x + (width - 1) / 2
    mode = _SCIPY_MODES[fill]
    moved = [ndimage.map_coordinates(part, places, order=order, mode=mode) for part in image]
    return np.stack(moved)


def loop_resample(
    image: Sequence[Sequence[float]],
    source: Source,
    fill: Fill,
    interpolation: str,
    level: float = 0.0,
) -> list[list[float]]:
    """Look at an H x W image through a map, pixel by pixel."""
    height, width = len(image), len(image[0])
    moved = [[level] * width for _ in range(height)]
    for row in range(height):
        for column in range(width):
            # Pixel centres lie at half-integers.
            x, y = source(column + 0.5 - width / 2, row + 0.5 - height / 2)
            from_x, from_y = x + width / 2 - 0.5, y + height / 2 - 0.5
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


def _toned(image: Array, middle: Array | float, factor: float) -> Array:
    return np.clip(middle + factor * (image - middle), 0, 1)


def _hued(image: Array, angle: float) -> Array:
    """Colours as points of space, turned about the line of greys."""
    turn = Rotation.from_rotvec(np.radians(angle) * np.ones(3) / math.sqrt(3))
    turned = turn.apply(image.reshape(3, -1).T).T
    return np.clip(turned.reshape(image.shape), 0, 1)


def _blurred(image: Array, deviation: float, reach: int) -> Array:
    for axis in (1, 2):
        image = ndimage.gaussian_filter1d(
            image, deviation, axis, mode="nearest", truncate=reach / deviation
        )
    return image


PIXELS: dict[str, Callable[[Array, float], Array]] = {
    "brightness": lambda image, value: np.clip(image + value, 0, 1),
    "contrast": lambda image, value: _toned(image, image.mean(), math.exp(value)),
    "gamma": lambda image, value: image ** math.exp(value),
    "saturation": lambda image, value: _toned(image, image.mean(0), math.exp(value)),
    "hue": _hued,
    "blur": lambda image, value: _blurred(image, value, 3),
}
"""Of each family of pixels, with its usual limits: what becomes of a C x H x W image."""
