"""The bilinear warp with black around as one Triton kernel, and one for its gradient by the pose.

Made of tensor operations, a warp is some fifty kernels, and its gradient a hundred: each takes
about as long to start as these take to run. What they compute is what ``upright.warp`` says.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["warp_black_bilinear"]


@triton.jit
def _cos_sin_degrees(angle):
    """As ``pose.cos_sin_degrees``: exact at every multiple of 90."""
    turns = tl.floor(angle / 90 + 0.5)
    rest = (angle - 90 * turns) * 0.017453292519943295
    cos, sin = tl.cos(rest), tl.sin(rest)
    quarter = turns.to(tl.int32) & 3
    odd = (quarter & 1) == 1
    sign = tl.where(quarter >= 2, -1.0, 1.0)
    return sign * tl.where(odd, -sin, cos), sign * tl.where(odd, cos, sin)


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
    there = inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    return tl.load(image + row * WIDTH + column, mask=there, other=0.0)


@triton.jit(do_not_specialize=["count"])
def _warp(
    images,
    poses,
    out,
    count,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    move = tl.program_id(0).to(tl.int64)
    dx = tl.load(poses + 3 * move)
    dy = tl.load(poses + 3 * move + 1)
    cos, sin = _cos_sin_degrees(tl.load(poses + 3 * move + 2))
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < HEIGHT * WIDTH
    _, _, row, column, bottom_part, right_part = _sources(pixel, dx, dy, cos, sin, HEIGHT, WIDTH)
    for channel in range(CHANNELS):
        image = images + ((move % count) * CHANNELS + channel) * (HEIGHT * WIDTH)
        above = _tap(image, row, column, inside, HEIGHT, WIDTH) * (1 - right_part)
        above += _tap(image, row, column + 1, inside, HEIGHT, WIDTH) * right_part
        below = _tap(image, row + 1, column, inside, HEIGHT, WIDTH) * (1 - right_part)
        below += _tap(image, row + 1, column + 1, inside, HEIGHT, WIDTH) * right_part
        place = out + (move * CHANNELS + channel) * (HEIGHT * WIDTH) + pixel
        tl.store(place, above * (1 - bottom_part) + below * bottom_part, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _gradient_of_poses(
    images,
    poses,
    gradient,
    out,
    count,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    move = tl.program_id(0).to(tl.int64)
    dx = tl.load(poses + 3 * move)
    dy = tl.load(poses + 3 * move + 1)
    cos, sin = _cos_sin_degrees(tl.load(poses + 3 * move + 2))
    sum_dx = tl.zeros((BLOCK,), tl.float32)
    sum_dy = tl.zeros((BLOCK,), tl.float32)
    sum_angle = tl.zeros((BLOCK,), tl.float32)
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
            above_left = _tap(image, row, column, inside, HEIGHT, WIDTH)
            above_right = _tap(image, row, column + 1, inside, HEIGHT, WIDTH)
            below_left = _tap(image, row + 1, column, inside, HEIGHT, WIDTH)
            below_right = _tap(image, row + 1, column + 1, inside, HEIGHT, WIDTH)
            place = gradient + (move * CHANNELS + channel) * (HEIGHT * WIDTH) + pixel
            weight = tl.load(place, mask=inside, other=0.0)
            above, below = above_right - above_left, below_right - below_left
            by_x += weight * (above * (1 - bottom_part) + below * bottom_part)
            at_left, at_right = below_left - above_left, below_right - above_right
            by_y += weight * (at_left * (1 - right_part) + at_right * right_part)
        sum_dx -= by_x * cos + by_y * sin
        sum_dy += by_x * sin - by_y * cos
        sum_angle += by_y * (cos * x - sin * y) - by_x * (sin * x + cos * y)
    tl.store(out + 3 * move, tl.sum(sum_dx, 0))
    tl.store(out + 3 * move + 1, tl.sum(sum_dy, 0))
    tl.store(out + 3 * move + 2, tl.sum(sum_angle, 0) * 0.017453292519943295)


def warp_black_bilinear(images: Tensor, poses: Tensor) -> Tensor:
    """Move images in turn, one for each pose: image 0, 1, ..., and again from 0 on.

    Args:
        images: N x C x H x W, float32, without a gradient.
        poses: dx, dy and angle, M x 3, float32.

    Returns:
        M x C x H x W, differentiable once in ``poses``.
    """
    moved: Tensor = _Warp.apply(images.contiguous(), poses.contiguous())  # type: ignore[no-untyped-call]
    return moved


class _Warp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, poses: Tensor) -> Tensor:
        ctx.save_for_backward(images, poses)
        count, channels, height, width = images.shape
        out = images.new_empty((len(poses), channels, height, width))
        block = 256  # few registers: many programs gather at once
        blocks = triton.cdiv(height * width, block)
        with torch.cuda.device_of(images):
            _warp[(len(poses), blocks)](images, poses, out, count, channels, height, width, block)
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
                channels,
                height,
                width,
                1024,
                num_warps=8,
            )
        return None, out
