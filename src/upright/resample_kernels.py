"""The bilinear resampling with black around as one Triton kernel, and one for its gradient.

Made of tensor operations, a resampling is some fifty kernels, and its gradient a hundred: each
takes about as long to start as these take to run. What they compute is what ``upright.resample``
says.

There are two pairs: for any maps, and for the paper's turn and shift, with a zoom or without, which
read the pose itself: to make a map of it takes some thirty kernels.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from upright.window import Form, Window

__all__ = ["move_alike", "resample_black_bilinear"]

_RADIANS = tl.constexpr(math.pi / 180)
"""A degree in radians."""


@triton.jit
def _cos_sin_degrees(angle):
    """As ``families.cos_sin_degrees``: exact at every multiple of 90."""
    turns = tl.floor(angle / 90 + 0.5)
    rest = (angle - 90 * turns) * _RADIANS
    cos, sin = tl.cos(rest), tl.sin(rest)
    quarter = turns.to(tl.int32) & 3
    odd = (quarter & 1) == 1
    sign = tl.where(quarter >= 2, -1.0, 1.0)
    return sign * tl.where(odd, -sin, cos), sign * tl.where(odd, cos, sin)


@triton.jit
def _motion(pose, COLUMNS: tl.constexpr):
    """The shift of a pose, and the cosine and sine of its turn, over the factor of its zoom."""
    cos, sin = _cos_sin_degrees(tl.load(pose + 2))
    if COLUMNS == 4:
        smaller = tl.exp(-tl.load(pose + 3))
        cos, sin = cos * smaller, sin * smaller
    return tl.load(pose), tl.load(pose + 1), cos, sin


@triton.jit
def _sources(pixel, dx, dy, cos, sin, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Where pixels come from, about the centre before the turn: then the row and column above and
    left of that place, and the parts of those below and on the right."""
    x = pixel % WIDTH - (WIDTH - 1) / 2 - dx
    y = pixel // WIDTH - (HEIGHT - 1) / 2 - dy
    from_x = cos * x - sin * y + (WIDTH - 1) / 2
    from_y = sin * x + cos * y + (HEIGHT - 1) / 2
    left, top = tl.floor(from_x), tl.floor(from_y)
    return x, y, top.to(tl.int32), left.to(tl.int32), from_y - top, from_x - left


@triton.jit
def _tap(image, row, column, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Pixels of a channel, black around it."""
    there = inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    return tl.load(image + row * WIDTH + column, mask=there, other=0.0)


@triton.jit
def _four_taps(image, row, column, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """The pixels around a place: above left and right, below left and right."""
    above_left = _tap(image, row, column, inside, HEIGHT, WIDTH)
    above_right = _tap(image, row, column + 1, inside, HEIGHT, WIDTH)
    below_left = _tap(image, row + 1, column, inside, HEIGHT, WIDTH)
    below_right = _tap(image, row + 1, column + 1, inside, HEIGHT, WIDTH)
    return above_left, above_right, below_left, below_right


@triton.jit
def _bilinear(
    image, row, column, bottom_part, right_part, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):
    """The value of a channel between four pixels."""
    above_left, above_right, below_left, below_right = _four_taps(
        image, row, column, inside, HEIGHT, WIDTH
    )
    above = above_left * (1 - right_part) + above_right * right_part
    below = below_left * (1 - right_part) + below_right * right_part
    return above * (1 - bottom_part) + below * bottom_part


@triton.jit
def _bilinear_slopes(
    image, row, column, bottom_part, right_part, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):
    """The slopes of ``_bilinear`` in x and in y."""
    above_left, above_right, below_left, below_right = _four_taps(
        image, row, column, inside, HEIGHT, WIDTH
    )
    above, below = above_right - above_left, below_right - below_left
    at_left, at_right = below_left - above_left, below_right - above_right
    slope_x = above * (1 - bottom_part) + below * bottom_part
    slope_y = at_left * (1 - right_part) + at_right * right_part
    return slope_x, slope_y


@triton.jit
def _place(move, channel, pixel, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, LAST: tl.constexpr):
    """Where a pixel of a channel is written: channels lie one after another, or in each pixel."""
    if LAST:
        place = (move * PIXELS + pixel) * CHANNELS + channel
    else:
        place = (move * CHANNELS + channel) * PIXELS + pixel
    return place


@triton.jit(do_not_specialize=["count"])
def _warp(
    images,
    poses,
    out,
    count,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    move = tl.program_id(0).to(tl.int64)
    dx, dy, cos, sin = _motion(poses + COLUMNS * move, COLUMNS)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < HEIGHT * WIDTH
    _, _, row, column, bottom_part, right_part = _sources(pixel, dx, dy, cos, sin, HEIGHT, WIDTH)
    for channel in range(CHANNELS):
        image = images + ((move % count) * CHANNELS + channel) * (HEIGHT * WIDTH)
        value = _bilinear(image, row, column, bottom_part, right_part, inside, HEIGHT, WIDTH)
        place = _place(move, channel, pixel, CHANNELS, HEIGHT * WIDTH, CHANNELS_LAST)
        tl.store(out + place, value, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _gradient_of_poses(
    images,
    poses,
    gradient,
    out,
    count,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    move = tl.program_id(0).to(tl.int64)
    dx, dy, cos, sin = _motion(poses + COLUMNS * move, COLUMNS)
    sum_dx = tl.zeros((BLOCK,), tl.float32)
    sum_dy = tl.zeros((BLOCK,), tl.float32)
    sum_angle = tl.zeros((BLOCK,), tl.float32)
    sum_zoom = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, HEIGHT * WIDTH, BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        inside = pixel < HEIGHT * WIDTH
        x, y, row, column, bottom_part, right_part = _sources(
            pixel, dx, dy, cos, sin, HEIGHT, WIDTH
        )
        by_x = tl.zeros((BLOCK,), tl.float32)
        by_y = tl.zeros((BLOCK,), tl.float32)
        for channel in range(CHANNELS):
            image = images + ((move % count) * CHANNELS + channel) * (HEIGHT * WIDTH)
            slope_x, slope_y = _bilinear_slopes(
                image, row, column, bottom_part, right_part, inside, HEIGHT, WIDTH
            )
            place = gradient + (move * CHANNELS + channel) * (HEIGHT * WIDTH) + pixel
            weight = tl.load(place, mask=inside, other=0.0)
            by_x += weight * slope_x
            by_y += weight * slope_y
        sum_dx -= by_x * cos + by_y * sin
        sum_dy += by_x * sin - by_y * cos
        sum_angle += by_y * (cos * x - sin * y) - by_x * (sin * x + cos * y)
        if COLUMNS == 4:
            sum_zoom -= by_x * (cos * x - sin * y) + by_y * (sin * x + cos * y)
    out += COLUMNS * move
    tl.store(out, tl.sum(sum_dx, 0))
    tl.store(out + 1, tl.sum(sum_dy, 0))
    tl.store(out + 2, tl.sum(sum_angle, 0) * _RADIANS)
    if COLUMNS == 4:
        tl.store(out + 3, tl.sum(sum_zoom, 0))


def move_alike(images: Tensor, poses: Tensor, form: Form | None = None) -> Tensor:
    """Move images in turn, one for each pose: image 0, 1, ..., and again from 0 on.

    Args:
        images: N x C x H x W, float32, without a gradient.
        poses: dx, dy, angle and, where there is a fourth column, the logarithm of a zoom; M x 3 or
            M x 4, float32.
        form: how the result is to lie in memory; by default as the images.

    Returns:
        M x C x H x W, differentiable once in ``poses``.
    """
    moved: Tensor = _Warp.apply(  # type: ignore[no-untyped-call]
        images.contiguous(), poses.contiguous(), form or Form(images.dtype)
    )
    return moved


class _Warp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, poses: Tensor, form: Form) -> Tensor:
        ctx.save_for_backward(images, poses)
        count, channels, height, width = images.shape
        out = form.empty(images, (len(poses), channels, height, width))
        block = 256  # few registers: many programs gather at once
        blocks = triton.cdiv(height * width, block)
        with torch.cuda.device_of(images):
            _warp[(len(poses), blocks)](
                images,
                poses,
                out,
                count,
                poses.shape[1],
                channels,
                height,
                width,
                block,
                form.channels_last,
            )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        images, poses = ctx.saved_tensors
        count, channels, height, width = images.shape
        out = torch.empty_like(poses)
        with torch.cuda.device_of(images):
            _gradient_of_poses[(len(poses),)](
                images,
                poses,
                gradient.contiguous(),
                out,
                count,
                poses.shape[1],
                channels,
                height,
                width,
                1024,
                num_warps=8,
            )
        return None, out, None


@triton.jit
def _mapped(
    pixel,
    maps,
    left,
    top,
    middle_x,
    middle_y,
    OUT_WIDTH: tl.constexpr,
    NEAREST: tl.constexpr,  # 0 for affine maps
):
    """Where pixels come from: the point of each, its source about the centre and the depth there;
    then the row and column above and left of that place, and the parts of those beyond."""
    x = pixel % OUT_WIDTH + left
    y = pixel // OUT_WIDTH + top
    from_x = tl.load(maps) * x + tl.load(maps + 1) * y + tl.load(maps + 2)
    from_y = tl.load(maps + 3) * x + tl.load(maps + 4) * y + tl.load(maps + 5)
    depth = tl.full(x.shape, 1.0, tl.float32)
    if NEAREST > 0:
        depth = tl.load(maps + 6) * x + tl.load(maps + 7) * y + tl.load(maps + 8)
        depth = tl.maximum(depth, NEAREST)
        from_x, from_y = from_x / depth, from_y / depth
    at_x, at_y = from_x + middle_x, from_y + middle_y
    column, row = tl.floor(at_x), tl.floor(at_y)
    whole_row, whole_column = row.to(tl.int32), column.to(tl.int32)
    return x, y, from_x, from_y, depth, whole_row, whole_column, at_y - row, at_x - column


@triton.jit(do_not_specialize=["count"])
def _resample(
    images,
    maps,
    out,
    count,
    left,
    top,
    middle_x,
    middle_y,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    NEAREST: tl.constexpr,  # 0 for affine maps
    BLOCK: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    move = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < OUT_HEIGHT * OUT_WIDTH
    _, _, _, _, _, row, column, bottom_part, right_part = _mapped(
        pixel, maps + 9 * move, left, top, middle_x, middle_y, OUT_WIDTH, NEAREST
    )
    for channel in range(CHANNELS):
        image = images + ((move % count) * CHANNELS + channel) * (HEIGHT * WIDTH)
        value = _bilinear(image, row, column, bottom_part, right_part, inside, HEIGHT, WIDTH)
        place = _place(move, channel, pixel, CHANNELS, OUT_HEIGHT * OUT_WIDTH, CHANNELS_LAST)
        tl.store(out + place, value, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _gradient_of_maps(
    images,
    maps,
    gradient,
    out,
    count,
    left,
    top,
    middle_x,
    middle_y,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    NEAREST: tl.constexpr,  # 0 for affine maps
    BLOCK: tl.constexpr,
):
    move = tl.program_id(0).to(tl.int64)
    by_a = tl.zeros((BLOCK,), tl.float32)
    by_b = tl.zeros((BLOCK,), tl.float32)
    by_dx = tl.zeros((BLOCK,), tl.float32)
    by_c = tl.zeros((BLOCK,), tl.float32)
    by_d = tl.zeros((BLOCK,), tl.float32)
    by_dy = tl.zeros((BLOCK,), tl.float32)
    by_e = tl.zeros((BLOCK,), tl.float32)
    by_f = tl.zeros((BLOCK,), tl.float32)
    by_g = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, OUT_HEIGHT * OUT_WIDTH, BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        inside = pixel < OUT_HEIGHT * OUT_WIDTH
        x, y, from_x, from_y, depth, row, column, bottom_part, right_part = _mapped(
            pixel, maps + 9 * move, left, top, middle_x, middle_y, OUT_WIDTH, NEAREST
        )
        by_x = tl.zeros((BLOCK,), tl.float32)
        by_y = tl.zeros((BLOCK,), tl.float32)
        for channel in range(CHANNELS):
            image = images + ((move % count) * CHANNELS + channel) * (HEIGHT * WIDTH)
            slope_x, slope_y = _bilinear_slopes(
                image, row, column, bottom_part, right_part, inside, HEIGHT, WIDTH
            )
            place = gradient + (move * CHANNELS + channel) * (OUT_HEIGHT * OUT_WIDTH) + pixel
            weight = tl.load(place, mask=inside, other=0.0)
            by_x += weight * slope_x
            by_y += weight * slope_y
        by_x, by_y = by_x / depth, by_y / depth
        by_a += by_x * x
        by_b += by_x * y
        by_dx += by_x
        by_c += by_y * x
        by_d += by_y * y
        by_dy += by_y
        if NEAREST > 0:
            # What is held at the least depth does not get nearer.
            by_depth = tl.where(depth > NEAREST, -(by_x * from_x + by_y * from_y), 0.0)
            by_e += by_depth * x
            by_f += by_depth * y
            by_g += by_depth
    out += 9 * move
    tl.store(out, tl.sum(by_a, 0))
    tl.store(out + 1, tl.sum(by_b, 0))
    tl.store(out + 2, tl.sum(by_dx, 0))
    tl.store(out + 3, tl.sum(by_c, 0))
    tl.store(out + 4, tl.sum(by_d, 0))
    tl.store(out + 5, tl.sum(by_dy, 0))
    tl.store(out + 6, tl.sum(by_e, 0))
    tl.store(out + 7, tl.sum(by_f, 0))
    tl.store(out + 8, tl.sum(by_g, 0))


def resample_black_bilinear(
    images: Tensor,
    maps: Tensor,
    window: Window,
    *,
    nearest: float = 0.0,
    form: Form | None = None,
) -> Tensor:
    """As ``resample_window``, for images in float32 and without a gradient, on a GPU.

    Maps are projective where ``nearest`` is above 0: what is less deep is shown as if it were so.
    """
    moved: Tensor = _Resample.apply(  # type: ignore[no-untyped-call]
        images.contiguous(), maps.contiguous(), window, nearest, form or Form(images.dtype)
    )
    return moved


class _Resample(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: Tensor, maps: Tensor, window: Window, nearest: float, form: Form
    ) -> Tensor:
        ctx.save_for_backward(images, maps)
        ctx.window, ctx.nearest = window, nearest
        shape = (len(maps), images.shape[1], window.height, window.width)
        out = form.empty(images, shape)
        block = 256  # few registers: many programs gather at once
        blocks = triton.cdiv(window.height * window.width, block)
        with torch.cuda.device_of(images):
            _resample[(len(maps), blocks)](
                images, maps, out, *_numbers(images, window), nearest, block, form.channels_last
            )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        images, maps = ctx.saved_tensors
        out = torch.empty_like(maps)
        with torch.cuda.device_of(images):
            _gradient_of_maps[(len(maps),)](
                images,
                maps,
                gradient.contiguous(),
                out,
                *_numbers(images, ctx.window),
                ctx.nearest,
                1024,
                num_warps=8,
            )
        return None, out, None, None, None


def _numbers(images: Tensor, window: Window) -> tuple[float, ...]:
    """What both kernels are told of images and window."""
    count, channels, height, width = images.shape
    middle_y, middle_x = window.centre
    corner = (float(window.left - middle_x), float(window.top - middle_y))
    places = (*corner, float(middle_x), float(middle_y))
    return (count, *places, channels, height, width, window.height, window.width)
