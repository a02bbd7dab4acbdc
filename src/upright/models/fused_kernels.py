"""The Triton kernels of ``fused``: a 3x3 convolution with all that stands around it.

Images lie in memory as N x H x W x C. One program computes a block of output pixels for all output
channels: nine small matrix products, one for each tap, summed in float32; then, while the sum is
still in registers, the shortcut, the norm (an affine map of each channel in evaluation mode) and
the leaky ReLU. What is written is what the next layer reads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["convolve", "standardise"]

_CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
    for block, warps, stages in ((64, 4, 3), (128, 4, 3), (128, 8, 3), (256, 8, 2))
]


@triton.autotune(_CONFIGS, key=["HEIGHT", "BEFORE", "AFTER", "STRIDE"])
@triton.jit
def _convolve(
    active,
    weights,
    shortcut,
    scale,
    shift,
    raw_out,
    active_out,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    STRIDE: tl.constexpr,
    SLOPE: tl.constexpr,
    SHORTCUT_HEIGHT: tl.constexpr,  # 0 where there is none
    SHORTCUT_WIDTH: tl.constexpr,
    SHORTCUT_CHANNELS: tl.constexpr,
    KEEPS_RAW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = pixel < pixels
    image = pixel // (rows * columns)
    y = pixel % (rows * columns) // columns
    x = pixel % columns
    before = tl.arange(0, BEFORE)
    after = tl.arange(0, AFTER)
    total = tl.zeros((BLOCK, AFTER), tl.float32)
    for tap in range(9):
        row, column = y * STRIDE - 1 + tap // 3, x * STRIDE - 1 + tap % 3
        inside = exists & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        place = (image * HEIGHT + row) * WIDTH + column
        values = tl.load(
            active + place[:, None] * BEFORE + before[None, :], mask=inside[:, None], other=0.0
        )
        kernel = tl.load(weights + after[None, :] * (9 * BEFORE) + tap * BEFORE + before[:, None])
        total = tl.dot(values, kernel, total)
    place = pixel[:, None] * AFTER + after[None, :]
    if rows == SHORTCUT_HEIGHT:
        total += tl.load(shortcut + place, mask=exists[:, None], other=0.0).to(tl.float32)
    elif SHORTCUT_HEIGHT > 0:
        # Average over two by two pixels, those outside left out; missing channels are zero.
        channel = after - (AFTER - SHORTCUT_CHANNELS) // 2
        known = (channel >= 0) & (channel < SHORTCUT_CHANNELS)
        pooled = tl.zeros((BLOCK, AFTER), tl.float32)
        count = tl.zeros((BLOCK,), tl.float32)
        for corner in tl.static_range(4):
            row, column = 2 * y + corner // 2, 2 * x + corner % 2
            inside = exists & (row < SHORTCUT_HEIGHT) & (column < SHORTCUT_WIDTH)
            source = (image * SHORTCUT_HEIGHT + row) * SHORTCUT_WIDTH + column
            pooled += tl.load(
                shortcut + source[:, None] * SHORTCUT_CHANNELS + channel[None, :],
                mask=inside[:, None] & known[None, :],
                other=0.0,
            ).to(tl.float32)
            count += inside.to(tl.float32)
        total += pooled / tl.maximum(count, 1.0)[:, None]
    if KEEPS_RAW:
        tl.store(raw_out + place, total.to(raw_out.dtype.element_ty), mask=exists[:, None])
    normed = total * tl.load(scale + after)[None, :] + tl.load(shift + after)[None, :]
    normed = tl.maximum(normed, normed * SLOPE)
    tl.store(active_out + place, normed.to(active_out.dtype.element_ty), mask=exists[:, None])


@triton.jit
def _standardise(
    images,
    out,
    least,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    pixel = tl.arange(0, BLOCK)[:, None]
    channel = tl.arange(0, PADDED)[None, :]
    inside = (pixel < PIXELS) & (channel < CHANNELS)
    values = tl.load(
        images + image * (PIXELS * CHANNELS) + channel * PIXELS + pixel, mask=inside, other=0.0
    )
    mean = tl.sum(tl.sum(values, 1), 0) / (PIXELS * CHANNELS)
    centred = tl.where(inside, values - mean, 0.0)
    deviation = tl.sqrt(tl.sum(tl.sum(centred * centred, 1), 0) / (PIXELS * CHANNELS))
    standard = centred / tl.maximum(deviation, least)
    place = out + image * (PIXELS * PADDED) + pixel * PADDED + channel
    tl.store(place, standard.to(out.dtype.element_ty), mask=pixel < PIXELS)


def standardise(images: Tensor, dtype: torch.dtype, *, padded: int, least: float) -> Tensor:
    """Give each image mean 0 and deviation 1 and lay it out for ``convolve``.

    Args:
        images: N x C x H x W, float32, contiguous, of at most 4096 pixels.
        dtype: of the result, N x H x W x ``padded``.
        padded: channels of the result; those that are missing are zeros.
        least: lower bound of the deviation.
    """
    count, channels, height, width = images.shape
    out = torch.empty((count, height, width, padded), dtype=dtype, device=images.device)
    block = triton.next_power_of_2(height * width)
    _standardise[(count,)](images, out, least, height * width, channels, padded, block, num_warps=8)
    return out


def convolve(
    active: Tensor,
    weights: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    after: int,
    stride: int = 1,
    slope: float,
    shortcut: Tensor | None = None,
    keeps_raw: bool = False,
) -> tuple[Tensor, Tensor]:
    """Convolve, add the shortcut, then norm and activate.

    Args:
        active: N x H x W x C, contiguous, in half precision.
        weights: ``after`` x 3 x 3 x C in memory, of the same dtype.
        scale: the next norm's factors, float32.
        shift: the next norm's offsets, float32.
        after: output channels, a power of two like C, at least 16.
        stride: 1 or 2.
        slope: of the leaky ReLU.
        shortcut: what to add to the convolution: like the output, or twice as high and wide with
            fewer channels, which is then averaged and padded.
        keeps_raw: also give the sum before the norm.

    Returns:
        The sum before the norm (empty unless it was asked for), and the activations.
    """
    count, height, width, before = active.shape
    shape = (count, -(-height // stride), -(-width // stride), after)
    out = active.new_empty(shape)
    raw = active.new_empty(shape if keeps_raw else (0,))
    pixels = shape[0] * shape[1] * shape[2]
    added = (0, 0, 0) if shortcut is None else tuple(shortcut.shape[1:])

    def grid(config: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(pixels, config["BLOCK"]),)

    with torch.cuda.device_of(active):
        _convolve[grid](
            active,
            weights,
            out if shortcut is None else shortcut,
            scale,
            shift,
            raw,
            out,
            pixels,
            height,
            width,
            before,
            after,
            stride,
            slope,
            *added,
            keeps_raw,
        )
    return raw, out
