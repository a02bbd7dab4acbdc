"""Resample images under a pose: the only place where pixels are moved.

Convention
----------
Pixel centres lie at half-integers (``align_corners=False``), so the centre of an even-sized image
lies between pixels. The rotation and the translation are one affine map and one resampling, but not
with ``bilinear-twice``. A zero pose gives back the image bit for bit, and a shift by whole pixels
or a turn of a square image by 90 degrees is exact, at every size.

``reflection`` mirrors at the outer edge of the border pixel: d c b a | a b c d | d c b a.

With a colour, as in ``#7f7f7f``, an image is resampled as if it went on in that colour without end.
Its levels are 255ths, as those of a uint8 image are.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.checks import check_float_images
from upright.pose import Pose, cos_sin_degrees

__all__ = [
    "FILLS",
    "Fill",
    "Interpolation",
    "check_fill",
    "check_options",
    "warp",
    "warp_all",
]

Fill = str
"""What lies outside an image: one of ``FILLS``, or a colour such as ``#7f7f7f``."""
FILLS = ("black", "reflection", "border")
"""The fills that have names."""
Interpolation = Literal["nearest", "bilinear", "bicubic", "bilinear-twice"]
"""How a value between pixels is made."""

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")

# Bicubic interpolation reads two pixels beyond a position, which itself may lie two outside.
_MARGIN = 4


def warp(
    images: Tensor,
    pose: Pose,
    *,
    fill: Fill = "black",
    interpolation: Interpolation = "bilinear",
    canvas: int = 0,
) -> Tensor:
    """Move each image by its own pose.

    Args:
        images: N x C x H x W, of any float dtype.
        pose: of shape (N,), or (1,) for the same pose everywhere. With axes in front, as in (k, N),
            every image is moved k times.
        fill: what lies outside an image: ``black``, its ``reflection``, its ``border`` pixels, or a
            colour, red, green and blue in hexadecimal digits as in ``#ff8000``. A grey such as
            ``#7f7f7f`` is one for any number of channels, others need three.
        interpolation: ``nearest``, ``bilinear`` or ``bicubic``; or ``bilinear-twice``, which turns
            images and then shifts what came out, as the paper's authors do: it blurs more.
        canvas: pad by this many pixels on every side first, so that nothing is cropped; the result
            is larger by twice as many. They are black, or of the fill's colour.

    Returns:
        Images of the same dtype, N x C x H x W after the leading axes of ``pose``, differentiable
        in ``images`` and ``pose``.

    >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> warp(image, Pose.of(dx=1))  # to the right
    tensor([[[[0., 1.],
              [0., 3.]]]])
    >>> warp(image, Pose.of(angle=90))  # counter-clockwise
    tensor([[[[2., 4.],
              [1., 3.]]]])
    """
    _check(images, pose, fill, interpolation, canvas)
    if fill not in FILLS:
        return _over_colour(images, pose, fill, interpolation, canvas)
    leading, count = pose.shape[:-1], pose.shape[-1]
    flat = Pose.unstack(pose.stack().reshape(-1, 3))
    if count == 1 and len(images) > 1:
        moved = warp_all(images, flat, fill=fill, interpolation=interpolation, canvas=canvas)
        return moved.reshape(*leading, *moved.shape[1:])
    moved = _resample(images, flat, fill, interpolation, canvas)
    return moved.reshape(*leading, count, *moved.shape[1:])


def warp_all(
    images: Tensor,
    poses: Pose,
    *,
    fill: Fill = "black",
    interpolation: Interpolation = "bilinear",
    canvas: int = 0,
) -> Tensor:
    """Move every image by every one of M poses, given in shape (M,): M x N x C x H x W.

    On a CPU one sampling grid serves all images, which are folded into the channels: several times
    as fast as a grid for each image.
    """
    if len(poses.shape) != 1:
        raise ValueError(
            f"warp_all needs poses of shape (M,), but they have {tuple(poses.shape)}; use warp"
        )
    _check(images, poses[:, None], fill, interpolation, canvas)
    if fill not in FILLS:
        return _over_colour(images, poses[:, None], fill, interpolation, canvas)
    count = len(poses)
    if images.is_cuda:  # one grid has fewer places than a GPU has threads
        poses = Pose.unstack(poses.stack().repeat_interleave(len(images), 0))
        source = images
    else:
        source = images.flatten(0, 1)[None]
    moved = _resample(source, poses, fill, interpolation, canvas)
    return moved.reshape(count, *images.shape[:2], *moved.shape[-2:])


def _over_colour(
    images: Tensor, pose: Pose, fill: Fill, interpolation: Interpolation, canvas: int
) -> Tensor:
    """Warp images with black around them, and add the colour where they cover a pixel in part.

    The part that is covered is the warp of an image of ones: 1 where nothing was uncovered, so that
    what is exact with black stays so.
    """
    dtype = torch.promote_types(images.dtype, torch.float32)
    one = images.new_ones((1, 1, *images.shape[-2:]), dtype=dtype)
    moved = warp(images.to(dtype), pose, interpolation=interpolation, canvas=canvas)
    covered = warp(one, pose[..., None], interpolation=interpolation, canvas=canvas).squeeze(-4)
    # Numbers by fills: a CUDA graph cannot capture a copy from the host.
    colour = torch.stack([one.new_full((1, 1), level) for level in _levels(fill)])
    return (moved + (1 - covered) * colour).to(images.dtype)


def _levels(fill: Fill) -> list[float]:
    """Red, green and blue of a colour, or one level for all channels where they are the same."""
    levels = [byte / 255 for byte in bytes.fromhex(fill[1:])]
    return levels if len(set(levels)) > 1 else levels[:1]


def _resample(images: Tensor, pose: Pose, fill: Fill, interpolation: str, canvas: int) -> Tensor:
    """Resample images in turn, one for each pose: image 0, 1, ..., and again from 0 on."""
    if interpolation == "bilinear-twice":
        return _resample_twice(images, pose, fill, canvas)
    # Half precision cannot hold a position to a useful fraction of a pixel.
    dtype = torch.promote_types(images.dtype, torch.float32)
    if canvas:
        images = F.pad(images, [canvas] * 4)
    if fill == "black" and interpolation == "bilinear" and _has_kernel(images):
        from upright.warp_kernels import warp_black_bilinear

        return warp_black_bilinear(images, pose.stack().to(images.device, dtype))
    height, width = images.shape[-2:]
    x, y = _positions(pose.to(images.device, dtype), height, width)
    source = _source(images.to(dtype), fill)
    copies = len(pose) // len(images)
    pixels = source.pixels.expand(copies, *source.pixels.shape).flatten(0, 1)
    sampling_grid = torch.stack(
        (
            _normalise(_fold(x, width, fill) + source.offset, source.pixels.shape[-1]),
            _normalise(_fold(y, height, fill) + source.offset, source.pixels.shape[-2]),
        ),
        -1,
    )
    moved = F.grid_sample(
        pixels, sampling_grid, interpolation, padding_mode="zeros", align_corners=False
    )
    return moved.to(images.dtype)


def _resample_twice(images: Tensor, pose: Pose, fill: Fill, canvas: int) -> Tensor:
    """Turn images and shift what came out, both bilinear, as if on an endless canvas.

    To shift by a part of a pixel is to mix four shifts by whole pixels, each of which is one
    resampling with the turn.
    """
    dtype = torch.promote_types(images.dtype, torch.float32)
    pose, exact = pose.to(images.device, dtype), images.to(dtype)
    mixed = torch.zeros((), dtype=dtype, device=images.device)
    for (dx, of_x), (dy, of_y) in product(_whole_shifts(pose.dx), _whole_shifts(pose.dy)):
        moved = _resample(exact, Pose(dx, dy, pose.angle), fill, "bilinear", canvas)
        mixed = mixed + (of_x * of_y)[:, None, None, None] * moved
    return mixed.to(images.dtype)


class _WholeShift(NamedTuple):
    pixels: Tensor
    weight: Tensor


def _whole_shifts(shift: Tensor) -> tuple[_WholeShift, _WholeShift]:
    """The whole shifts on both sides of a shift, with weights that carry its gradient."""
    whole = shift.detach().floor()
    part = shift - whole
    return _WholeShift(whole, 1 - part), _WholeShift(whole + 1, part)


def _has_kernel(images: Tensor) -> bool:
    """Whether the usual warp can be one kernel: on a GPU, where images need no gradient."""
    if not images.is_cuda or images.dtype != torch.float32 or images.requires_grad:
        return False
    # What traces or transforms a program looks into operations, and a kernel is none.
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    from torch.utils._triton import has_triton

    return has_triton()


def _positions(pose: Pose, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where each output pixel comes from: x and y in pixels, each M x H x W."""
    cos, sin = (part[:, None, None] for part in cos_sin_degrees(pose.angle))
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    x = torch.arange(width, device=pose.device, dtype=pose.dx.dtype) - middle_x
    y = torch.arange(height, device=pose.device, dtype=pose.dx.dtype) - middle_y
    x = x[None, None, :] - pose.dx[:, None, None]
    y = y[None, :, None] - pose.dy[:, None, None]
    return cos * x - sin * y + middle_x, sin * x + cos * y + middle_y


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


def _check(images: Tensor, pose: Pose, fill: Fill, interpolation: str, canvas: int) -> None:
    check_float_images(images)
    if not pose.shape:
        raise ValueError("a pose without an axis for images; make it with Pose.of, or by pose[:1]")
    if pose.shape[-1] not in (1, len(images)):
        raise ValueError(
            f"{len(images)} images need one pose each or one for all, but there are "
            f"{pose.shape[-1]}; to apply every pose to every image, use warp_all"
        )
    check_options(fill, interpolation, canvas)
    if fill not in FILLS and len(_levels(fill)) not in (1, images.shape[1]):
        raise ValueError(
            f"fill {fill!r} has three channels, but the images have {images.shape[1]}; give a "
            "grey, such as '#7f7f7f'"
        )


def check_fill(fill: Fill) -> None:
    """Check the text of a fill."""
    if fill not in FILLS and not (isinstance(fill, str) and _COLOUR.fullmatch(fill)):
        raise ValueError(
            f"fill {fill!r} is not one of {', '.join(FILLS)}, nor a colour such as '#7f7f7f'"
        )


def check_options(fill: Fill, interpolation: str, canvas: int) -> None:
    """Check how images are to be moved."""
    if canvas < 0:
        raise ValueError(f"canvas must be at least 0 pixels, but is {canvas}")
    check_fill(fill)
    if interpolation not in get_args(Interpolation):
        raise ValueError(
            f"interpolation {interpolation!r} is not one of {', '.join(get_args(Interpolation))}"
        )
