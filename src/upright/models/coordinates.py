"""Coordinates in which a transformation is a shift, and the map that a shift in them stands for.

Convention
----------
Points and maps are in pixels relative to the image's centre, x to the right and y down. A map takes
a point of the straightened image to the point of the given image that is shown there, so that the
map of an image whose content was moved is that motion. Angles are counter-clockwise as displayed.

Points lie in the middles of the cells of a grid, R x S. Where its columns are angles, none of them
is met twice, at -180 and at +180 degrees: the mean of all of them would be 180 degrees otherwise,
and images would start upside down.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from upright.families import matrix_of

__all__ = [
    "Affine",
    "Coordinates",
    "ImageForm",
    "RotationScale",
    "ScaleX",
    "Translation",
    "middles",
]

_NEAREST = math.log(10)
"""Radii and distances are from a tenth of the largest on, so that their logarithm is bounded."""


@dataclass(frozen=True)
class ImageForm:
    """The size of an image in pixels, and the device and dtype of numbers about it."""

    height: int
    width: int
    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(images: Tensor) -> ImageForm:
        return ImageForm(images.shape[-2], images.shape[-1], images.device, images.dtype)


def middles(count: int, size: ImageForm) -> Tensor:
    """Give the middles of ``count`` equal parts of [-1, 1]; they are symmetric bit for bit."""
    places = torch.arange(1 - count, count, 2, device=size.device, dtype=size.dtype)
    return places / count


class Coordinates(abc.ABC):
    """A grid of points, and what the numbers mean that are predicted from an image sampled there.

    Attributes:
        axes: of the grid (-1 columns, -2 rows), along which each predicted number is a shift.
        cyclic: whether the columns are a circle.
    """

    axes: tuple[int, ...]
    cyclic: bool = False

    @abc.abstractmethod
    def points(self, size: ImageForm) -> Tensor:
        """Give the grid's points: x and y, 2 x R x S."""

    @abc.abstractmethod
    def maps(self, numbers: Tensor, size: ImageForm, /) -> Tensor:
        """Turn the N x len(axes) numbers, in [-1, 1] where bounded, into maps, N x 3 x 3."""


class Translation(Coordinates):
    """The image as it is. Numbers: shifts in x and in y, in halves of the image's size."""

    axes: tuple[int, ...] = (-1, -2)

    def points(self, size: ImageForm) -> Tensor:
        # Not by ``middles``: at sizes that are no power of two, these are not exact.
        x = torch.arange(size.width, device=size.device, dtype=size.dtype)
        y = torch.arange(size.height, device=size.device, dtype=size.dtype)
        return _grid(x - (size.width - 1) / 2, y - (size.height - 1) / 2)

    def maps(self, numbers: Tensor, size: ImageForm, /) -> Tensor:
        dx, dy = numbers.unbind(-1)
        return matrix_of((1, 0, dx * (size.width / 2)), (0, 1, dy * (size.height / 2)))


class RotationScale(Coordinates):
    """Rows: logarithm of the radius. Columns: angle. Numbers: logarithm of the scale, angle."""

    axes = (-2, -1)
    cyclic = True
    half_range = (_NEAREST + math.log(2) / 2) / 2
    """Of the logarithm: from a tenth of half a side to half a diagonal."""

    def points(self, size: ImageForm) -> Tensor:
        # A multiple of four, so that quarter turns are whole steps along the circle.
        angle = math.pi * middles(-(-size.width // 4) * 4, size)
        logarithm = self.half_range * (middles(size.height, size) + 1) - _NEAREST
        radius = max(size.height, size.width) / 2 * logarithm.exp()[:, None]
        return torch.stack((radius * angle.cos(), -radius * angle.sin()))

    def maps(self, numbers: Tensor, _size: ImageForm, /) -> Tensor:
        scale = (self.half_range * numbers[:, 0]).exp()
        cos, sin = (turn(math.pi * numbers[:, 1]) * scale for turn in (torch.cos, torch.sin))
        return matrix_of((cos, sin, 0), (-sin, cos, 0))


class ScaleX(Coordinates):
    """Rows: y, once for x > 0 and once for x < 0. Columns: logarithm of |x|. Number: its scale."""

    axes = (-1,)
    half_range = _NEAREST / 2

    def points(self, size: ImageForm) -> Tensor:
        x = size.width / 2 * (self.half_range * (middles(size.width, size) - 1)).exp()
        y = size.height / 2 * middles(-(-size.height // 2), size)
        right = _grid(x, y)
        return torch.cat((right, _grid(-x, y)), 1)

    def maps(self, numbers: Tensor, _size: ImageForm, /) -> Tensor:
        scale = (self.half_range * numbers[:, 0]).exp()
        return matrix_of((scale, 0, 0), (0, 1, 0))


class Affine(Translation):
    """The image as it is. Numbers: the six of an affine map, less the identity."""

    axes = (-1,) * 6

    def maps(self, numbers: Tensor, size: ImageForm, /) -> Tensor:
        a, b, dx, c, d, dy = numbers.unbind(-1)
        return matrix_of((1 + a, b, dx * (size.width / 2)), (c, 1 + d, dy * (size.height / 2)))


def _grid(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack(torch.meshgrid(x, y, indexing="xy"))
