"""Apply poses to images: each stage of their chain in turn, neighbouring matrices at once.

A zero pose gives back the image bit for bit. All that moves points is one resampling, but not with
``bilinear-twice``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.checks import check_float_images
from upright.families import Chain, Shift, Stage
from upright.pose import Pose
from upright.resample import (
    FILLS,
    Fill,
    Interpolation,
    check_fill,
    check_interpolation,
    has_kernel,
    levels_of,
    resample_window,
)
from upright.window import Form, Window

__all__ = [
    "FILLS",
    "Fill",
    "Interpolation",
    "Resampling",
    "check_canvas",
    "check_chain",
    "check_fill",
    "warp",
    "warp_all",
]


@dataclass(frozen=True)
class Resampling:
    """How images are moved, whatever the pose: called with both, it does as ``warp`` does."""

    fill: Fill = "black"
    interpolation: Interpolation = "bilinear"
    view: int | None = None
    form: Form | None = None
    """How the result is to lie in memory; None for as the images do."""
    margin: int = field(default=0, repr=False)
    """Pixels of canvas that are around the images already: sizes are those without it."""

    def __post_init__(self) -> None:
        check_fill(self.fill)
        check_interpolation(self.interpolation)

    def __call__(self, images: Tensor, pose: Pose) -> Tensor:
        """Change each image by its own pose."""
        return _warp(images, pose, self)


def warp(
    images: Tensor,
    pose: Pose,
    *,
    fill: Fill = "black",
    interpolation: Interpolation = "bilinear",
    canvas: int = 0,
    view: int | None = None,
) -> Tensor:
    """Change each image by its own pose.

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
        view: give the central so many pixels of the moved image, so that what comes in from outside
            them is real where the image is larger. Poses are about the centre of what is given.

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
    check_canvas(canvas)
    return _warp(images, pose, Resampling(fill, interpolation, view), canvas)


def _warp(images: Tensor, pose: Pose, resampling: Resampling, canvas: int = 0) -> Tensor:
    _check(images, pose, resampling.fill)
    exact = images.to(torch.promote_types(images.dtype, torch.float32))
    if canvas:
        exact = _padded(exact, canvas, resampling.fill)
    leading, each = pose.shape[:-1], pose.shape[-1]
    values = pose.values.to(exact.device, exact.dtype)
    values = values.reshape(leading.numel(), each, values.shape[-1])
    window = Window.of(exact, resampling.view, margin=canvas or resampling.margin)
    moved = exact[None]  # tries x images x C x H x W
    last = pose.chain.stages[-1]
    for stage in pose.chain.stages:
        own = values[..., stage.columns]
        if stage.is_spatial:
            part = window if stage is last else window.around(exact)
            way = resampling if stage is last else replace(resampling, form=None)
            moved = _moved(moved, stage, own, part, way)
        else:
            moved = stage.apply(moved, own[:, :, None, None, None])
    if not last.is_spatial:
        moved = window.cut(moved).expand(len(values), *[-1] * 4)
    if resampling.form is not None:
        moved = resampling.form.of(moved.flatten(0, 1)).unflatten(0, moved.shape[:2])
    else:
        moved = moved.to(images.dtype)
    return moved.reshape(*leading, *moved.shape[1:])


def warp_all(images: Tensor, poses: Pose, **way: Any) -> Tensor:
    """Change every image by every one of M poses, given in shape (M,): M x N x C x H x W.

    Otherwise as ``warp``.
    """
    if len(poses.shape) != 1:
        raise ValueError(
            f"warp_all needs poses of shape (M,), but they have {tuple(poses.shape)}; use warp"
        )
    return warp(images, poses[:, None], **way)


def _moved(
    images: Tensor, stage: Stage, values: Tensor, window: Window, resampling: Resampling
) -> Tensor:
    """Resample images, 1 or tries x N x C x H x W, by poses, tries x N or 1 x axes."""
    tries, count = len(values), images.shape[1]
    fill = resampling.fill
    black = resampling if fill in FILLS else replace(resampling, fill="black", form=None)
    if values.shape[1] == count:
        source, poses = images.flatten(0, 1), values.flatten(0, 1)
    elif images.is_cuda:  # one grid has fewer places than a GPU has threads
        source, poses = images.flatten(0, 1), values[:, 0].repeat_interleave(count, 0)
    else:  # one grid serves all images, folded into the channels: several times as fast
        source, poses = images.flatten(1, 2), values[:, 0]
    moved = _resampled(source, stage, poses, window, black)
    moved = moved.reshape(tries, count, images.shape[2], *moved.shape[-2:])
    if fill in FILLS:
        return moved
    one = images.new_ones((1, 1, *images.shape[-2:]))
    covered = _resampled(one, stage, values.flatten(0, 1), window, black)
    return moved + (1 - covered.reshape(tries, -1, *covered.shape[1:])) * _colour(fill, images)


def _resampled(
    images: Tensor, stage: Stage, values: Tensor, window: Window, resampling: Resampling
) -> Tensor:
    """Resample images in turn, one for each pose: image 0, 1, ..., and again from 0 on."""
    fill, interpolation = resampling.fill, resampling.interpolation
    if interpolation == "bilinear-twice":
        once = replace(resampling, interpolation="bilinear", form=None)
        return _resampled_twice(images, stage, values, window, once)
    whole = window == replace(Window.of(images), size=window.size)
    usual = fill == "black" and interpolation == "bilinear" and has_kernel(images)
    if stage.is_similar and whole and usual:
        from upright.resample_kernels import move_alike

        return move_alike(images, values, resampling.form)
    return resample_window(
        images,
        stage.inverse_matrix(values, window.size),
        window,
        fill=fill,
        interpolation=interpolation,
        projective=stage.is_projective,
        form=resampling.form,
    )


def _resampled_twice(
    images: Tensor, stage: Stage, values: Tensor, window: Window, once: Resampling
) -> Tensor:
    """Turn images and shift what came out, both bilinear, as if on an endless canvas.

    To shift by a part of a pixel is to mix four shifts by whole pixels, each of which is one
    resampling with the turn.
    """
    _check_twice(stage)
    if not isinstance(stage.families[0], Shift):
        return _resampled(images, stage, values, window, once)
    dx, dy, *rest = values.unbind(-1)
    mixed = torch.zeros((), dtype=images.dtype, device=images.device)
    for (whole_dx, of_x), (whole_dy, of_y) in product(_whole_shifts(dx), _whole_shifts(dy)):
        shifted = torch.stack((whole_dx, whole_dy, *rest), -1)
        moved = _resampled(images, stage, shifted, window, once)
        mixed = mixed + (of_x * of_y)[:, None, None, None] * moved
    return mixed


class _WholeShift(NamedTuple):
    pixels: Tensor
    weight: Tensor


def _whole_shifts(shift: Tensor) -> tuple[_WholeShift, _WholeShift]:
    """The whole shifts on both sides of a shift, with weights that carry its gradient."""
    whole = shift.detach().floor()
    part = shift - whole
    return _WholeShift(whole, 1 - part), _WholeShift(whole + 1, part)


def _padded(images: Tensor, canvas: int, fill: Fill) -> Tensor:
    """Images with black around them, or the fill's colour."""
    wide = F.pad(images, [canvas] * 4)
    if fill in FILLS:
        return wide
    inside = F.pad(images.new_ones((1, 1, *images.shape[-2:])), [canvas] * 4)
    return wide + (1 - inside) * _colour(fill, images)


def _colour(fill: Fill, images: Tensor) -> Tensor:
    """A colour's levels, C or 1 x 1 x 1; by fills: a CUDA graph cannot capture a copy."""
    return torch.stack([images.new_full((1, 1), level) for level in levels_of(fill)])


def _check(images: Tensor, pose: Pose, fill: Fill) -> None:
    check_float_images(images)
    if not pose.shape:
        raise ValueError("a pose without an axis for images; make it with Pose.of, or by pose[:1]")
    if pose.shape[-1] not in (1, len(images)):
        raise ValueError(
            f"{len(images)} images need one pose each or one for all, but there are "
            f"{pose.shape[-1]}; to apply every pose to every image, use warp_all"
        )
    if fill not in FILLS and len(levels_of(fill)) not in (1, images.shape[1]):
        raise ValueError(
            f"fill {fill!r} has three channels, but the images have {images.shape[1]}; give a "
            "grey, such as '#7f7f7f'"
        )


def check_chain(chain: Chain, interpolation: str) -> None:
    """Check that a chain can be resampled so."""
    if interpolation == "bilinear-twice":
        for stage in chain.stages:
            _check_twice(stage)


def _check_twice(stage: Stage) -> None:
    if any(isinstance(each, Shift) for each in stage.families[1:]):
        raise ValueError(
            "bilinear-twice shifts what was resampled before: give a space with shift in front"
        )


def check_canvas(canvas: int) -> None:
    """Check by how many pixels images are to be padded."""
    if canvas < 0:
        raise ValueError(f"canvas must be at least 0 pixels, but is {canvas}")
