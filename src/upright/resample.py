"""Resample images through maps: the only place where pixels are moved.

Convention
----------
Pixel centres lie at half-integers (``align_corners=False``), so the centre of an even-sized image
lies between pixels. A map takes a point of the result to the point of the image that is shown
there, both in pixels relative to the centre, x to the right and y down. Identity maps give back the
image bit for bit, and a shift by whole pixels or a turn of a square image by 90 degrees is exact,
at every size.

``reflection`` mirrors at the outer edge of the border pixel: d c b a | a b c d | d c b a.

With a colour, as in ``#7f7f7f``, an image is resampled as if it went on in that colour without end.
Its levels are 255ths, as those of a uint8 image are.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.tracing import is_traced
from upright.triton_support import has_triton
from upright.window import Form, Window

__all__ = [
    "FILLS",
    "NEAREST",
    "Fill",
    "Interpolation",
    "check_fill",
    "check_interpolation",
    "has_kernel",
    "levels_of",
    "pixels_of",
    "resample",
    "resample_window",
]

Fill = str
"""What lies outside an image: one of ``FILLS``, or a colour such as ``#7f7f7f``."""
FILLS = ("black", "reflection", "border")
"""The fills that have names."""
Interpolation = Literal["nearest", "bilinear", "bicubic", "bilinear-twice"]
"""How a value between pixels is made."""

Points = tuple[Tensor, Tensor]
"""x and y, in pixels from a centre."""

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")

# Bicubic interpolation reads two pixels beyond a position, which itself may lie two outside.
_MARGIN = 4
NEAREST = 1e-6
"""Of a perspective: what lies behind the viewer is shown as if it were so near."""


def resample_window(
    images: Tensor,
    maps: Tensor,
    window: Window,
    *,
    fill: Fill = "black",
    interpolation: str = "bilinear",
    projective: bool = False,
    form: Form | None = None,
) -> Tensor:
    """Look at images in turn, one for each map: image 0, 1, ..., and again from 0 on.

    Maps are about the centre of what is seen, M x 3 x 3. Gives M x C x the window's size, in a
    ``form`` where that costs nothing, else in that of the images.
    """
    if fill == "black" and interpolation == "bilinear" and has_kernel(images):
        from upright.resample_kernels import resample_black_bilinear

        nearest = NEAREST if projective else 0.0
        return resample_black_bilinear(images, maps, window, nearest=nearest, form=form)
    points = pixels_of(window, maps)
    return resample(
        images,
        maps,
        points,
        centre=window.centre,
        fill=fill,
        interpolation=interpolation,
        projective=projective,
    )


def resample(
    images: Tensor,
    maps: Tensor,
    points: Tensor | Points,
    *,
    centre: tuple[float, float] | None = None,
    fill: Fill = "black",
    interpolation: str = "bilinear",
    projective: bool = False,
) -> Tensor:
    """Sample images in turn where their maps take some points, R x S: M x C x R x S.

    Never in half precision, which cannot hold a position to a useful fraction of a pixel.

    Args:
        images: N x C x H x W.
        maps: M x 3 x 3, where M is a multiple of N.
        points: x and y in pixels, each of a shape that broadcasts to R x S.
        centre: the row and column of the point 0, 0; by default the image's own centre.
        fill: what lies outside.
        interpolation: ``nearest``, ``bilinear`` or ``bicubic``.
        projective: whether the last row of a map may be another than 0, 0, 1.
    """
    exact = images.to(torch.promote_types(images.dtype, torch.float32))
    height, width = images.shape[-2:]
    middle = centre or ((height - 1) / 2, (width - 1) / 2)
    source = _source(exact, fill)
    times = len(maps) // max(1, len(images))
    pixels = source.pixels.expand(times, *source.pixels.shape).flatten(0, 1)
    frame_height, frame_width = source.pixels.shape[-2:]
    if fill == "black" and not projective:
        sampling_grid = _affine_grid(maps.to(exact), points, middle, (frame_height, frame_width))
    else:
        x, y = _positions(maps.to(exact), points, middle, projective=projective)
        sampling_grid = torch.stack(
            (
                _normalise(_fold(x, width, fill) + source.offset, frame_width),
                _normalise(_fold(y, height, fill) + source.offset, frame_height),
            ),
            -1,
        )
    with _in_full_precision(images.device.type):
        moved = F.grid_sample(
            pixels, sampling_grid, interpolation, padding_mode="zeros", align_corners=False
        )
    return moved.to(images.dtype)


def _in_full_precision(device: str) -> AbstractContextManager[object]:
    """Without autocast, which the device of mere shapes has not."""
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def pixels_of(window: Window, like: Tensor) -> Points:
    """Give the pixels of a window as points about what is seen: x of columns and y of rows."""
    middle_y, middle_x = window.centre
    x = torch.arange(window.width, device=like.device, dtype=like.dtype) + (window.left - middle_x)
    y = torch.arange(window.height, device=like.device, dtype=like.dtype) + (window.top - middle_y)
    return x, y[:, None]


def has_kernel(images: Tensor) -> bool:
    """Whether the usual resampling can be one kernel: on a GPU, where images need no gradient."""
    if not images.is_cuda or images.dtype != torch.float32 or images.requires_grad:
        return False
    return has_triton() and not is_traced()  # a kernel is no operation to look into


def _positions(
    maps: Tensor, points: Tensor | Points, centre: tuple[float, float], *, projective: bool
) -> tuple[Tensor, Tensor]:
    """Where points are read, as columns and rows of the image: x and y, each M x R x S."""
    rows = [row[..., None, None].unbind(1) for row in maps.unbind(1)]
    (a, b, dx), (c, d, dy), (e, f, g) = rows
    x, y = points
    middle_y, middle_x = centre
    if not projective:
        # In this order, what cancels cancels exactly: by half a quarter turn, the diagonal.
        return a * x + b * y + (dx + middle_x), c * x + d * y + (dy + middle_y)
    depth = (e * x + f * y + g).clamp_min(NEAREST)
    from_x, from_y = a * x + b * y + dx, c * x + d * y + dy
    return from_x / depth + middle_x, from_y / depth + middle_y


def _affine_grid(
    maps: Tensor, points: Tensor | Points, centre: tuple[float, float], frame: tuple[int, int]
) -> Tensor:
    """Give normalised positions in a frame at once, M x R x S x 2, for maps that are affine.

    Sides of the frame are powers of two, by which the maps are divided without rounding. So what is
    exact, or cancels, does so as in ``_positions``.
    """
    (a, b, dx), (c, d, dy) = (row[..., None, None].unbind(1) for row in maps[:, :2].unbind(1))
    (x, y), (middle_y, middle_x), (height, width) = points, centre, frame
    by_x, by_y = 2 / width, 2 / height
    along = (a * by_x * x, c * by_y * x)
    down = (b * by_x * y, d * by_y * y)
    start = (_normalise(dx + middle_x, width), _normalise(dy + middle_y, height))
    if _is_plain(maps):
        # A sum of complex numbers, which is two sums side by side, as they are to lie: several
        # times as fast as to bring them there.
        whole = torch.complex(*along) + torch.complex(*down)
        return torch.view_as_real(whole.add_(torch.complex(*start)))
    sums = (first + second + third for first, second, third in zip(along, down, start, strict=True))
    return torch.stack(tuple(sums), -1)


def _is_plain(maps: Tensor) -> bool:
    """Whether nobody looks at what is computed: no gradient, no compiler, no exporter."""
    return not (maps.requires_grad or is_traced())


class _Source(NamedTuple):
    pixels: Tensor
    offset: int


def _source(images: Tensor, fill: Fill) -> _Source:
    """Lay the images into a frame of power-of-two size, with what lies around them.

    At such a size the normalised coordinates of whole pixels are exact, at others they are not:
    this is what makes a zero pose the identity bit for bit.
    """
    height, width = images.shape[-2:]
    if fill == "black":
        frame = [0, _power_of_two(width) - width, 0, _power_of_two(height) - height]
        return _Source(F.pad(images, frame) if any(frame) else images, 0)
    rows = _around(height, fill, images.device)
    columns = _around(width, fill, images.device)
    return _Source(images[..., rows, :][..., columns], _MARGIN)


def _around(size: int, fill: Fill, device: torch.device) -> Tensor:
    """The index of the pixel that stands at each place of the frame, along one axis."""
    place = torch.arange(_power_of_two(size + 2 * _MARGIN), device=device) - _MARGIN
    if fill == "reflection":
        # In half pixels, so that the mirror between two pixels has a whole number.
        place = size - 1 - torch.abs(torch.remainder(2 * place + 1, 4 * size) - 2 * size) // 2
    return place.clamp(0, size - 1)


def _fold(position: Tensor, size: int, fill: Fill) -> Tensor:
    """Bring positions outside the image to where the frame holds the same values."""
    if fill == "reflection":
        return size - torch.abs(torch.remainder(position + 0.5, 2 * size) - size) - 0.5
    return position.clamp(-2, size + 1) if fill == "border" else position


def _normalise(position: Tensor, size: int) -> Tensor:
    return (2 * position + 1) / size - 1


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def levels_of(fill: Fill) -> list[float]:
    """Red, green and blue of a colour, or one level for all channels where they are the same."""
    levels = [byte / 255 for byte in bytes.fromhex(fill[1:])]
    return levels if len(set(levels)) > 1 else levels[:1]


def check_fill(fill: Fill) -> None:
    """Check the text of a fill."""
    if fill not in FILLS and not (isinstance(fill, str) and _COLOUR.fullmatch(fill)):
        raise ValueError(
            f"fill {fill!r} is not one of {', '.join(FILLS)}, nor a colour such as '#7f7f7f'"
        )


def check_interpolation(interpolation: str) -> None:
    """Check the name of an interpolation."""
    if interpolation not in get_args(Interpolation):
        raise ValueError(
            f"interpolation {interpolation!r} is not one of {', '.join(get_args(Interpolation))}"
        )
