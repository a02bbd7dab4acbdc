"""What Triton kernels of a residual block share: places of pixels, and its shortcut.

A shortcut without weights adds what it is given as it is; or, where the residual block halves the
size, averaged over two by two pixels with zeros in the missing channels.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["place_of", "shortcut_at", "shortcut_gradient", "shortcut_stride"]


@triton.jit
def place_of(pixel, rows: tl.constexpr, columns: tl.constexpr):
    """Image, row and column of pixels that are counted through the whole batch."""
    return pixel // (rows * columns), pixel % (rows * columns) // columns, pixel % columns


@triton.jit
def shortcut_at(
    shortcut,
    pixel,
    exists,
    rows: tl.constexpr,
    columns: tl.constexpr,
    AFTER: tl.constexpr,
    SHORTCUT_HEIGHT: tl.constexpr,
    SHORTCUT_WIDTH: tl.constexpr,
    SHORTCUT_CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What is added to the convolution: as it is, or averaged over two by two pixels (those
    outside left out) with zeros in the missing channels."""
    after = tl.arange(0, AFTER)
    if rows == SHORTCUT_HEIGHT and AFTER == SHORTCUT_CHANNELS:
        place = pixel[:, None] * AFTER + after[None, :]
        found = tl.load(shortcut + place, mask=exists[:, None], other=0.0).to(tl.float32)
    else:
        image, y, x = place_of(pixel, rows, columns)
        channel = after - (AFTER - SHORTCUT_CHANNELS) // 2
        known = (channel >= 0) & (channel < SHORTCUT_CHANNELS)
        found = tl.zeros((BLOCK, AFTER), tl.float32)
        count = tl.zeros((BLOCK,), tl.float32)
        for corner in tl.static_range(4):
            row, column = 2 * y + corner // 2, 2 * x + corner % 2
            inside = exists & (row < SHORTCUT_HEIGHT) & (column < SHORTCUT_WIDTH)
            source = (image * SHORTCUT_HEIGHT + row) * SHORTCUT_WIDTH + column
            found += tl.load(
                shortcut + source[:, None] * SHORTCUT_CHANNELS + channel[None, :],
                mask=inside[:, None] & known[None, :],
                other=0.0,
            ).to(tl.float32)
            count += inside.to(tl.float32)
        found /= tl.maximum(count, 1.0)[:, None]
    return found


@triton.jit
def shortcut_gradient(
    gradient,
    image,
    y,
    x,
    exists,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    SHORTCUT_STRIDE: tl.constexpr,  # 1 as it is, 2 averaged and padded
    SHORTCUT_CHANNELS: tl.constexpr,
):
    """The gradient that reaches a block's input through its shortcut."""
    rows: tl.constexpr = (HEIGHT + SHORTCUT_STRIDE - 1) // SHORTCUT_STRIDE
    columns: tl.constexpr = (WIDTH + SHORTCUT_STRIDE - 1) // SHORTCUT_STRIDE
    channel = tl.arange(0, CHANNELS) + (SHORTCUT_CHANNELS - CHANNELS) // 2
    row, column = y // SHORTCUT_STRIDE, x // SHORTCUT_STRIDE
    place = ((image * rows + row) * columns + column)[:, None] * SHORTCUT_CHANNELS
    found = tl.load(gradient + place + channel[None, :], mask=exists[:, None], other=0.0)
    high = tl.minimum(HEIGHT - row * SHORTCUT_STRIDE, SHORTCUT_STRIDE)
    wide = tl.minimum(WIDTH - column * SHORTCUT_STRIDE, SHORTCUT_STRIDE)
    return found.to(tl.float32) / (high * wide).to(tl.float32)[:, None]


def shortcut_stride(shortcut: Tensor | None, entered: Tensor) -> int:
    """By how much a shortcut, of which this is the gradient, makes smaller what entered: by 1 or 2,
    or by 0 where there is none."""
    if shortcut is None:
        return 0
    return 1 if shortcut.shape == entered.shape else 2
