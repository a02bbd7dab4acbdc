"""Triton kernels of a forward pass: a 3x3 convolution with all that stands around it.

Images lie in memory as N x H x W x C. One program computes a block of output pixels for all output
channels, summed in float32; while the sum is still in registers it adds the shortcut, and then:

- in evaluation mode a norm is an affine map of each channel: norm and leaky ReLU are applied at
  once, and what is written is what the next layer reads;
- in training mode a norm needs the mean and deviation of the whole batch: the sums over the block
  are added to those of the batch, and ``activate`` applies the norm when all are in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from upright.models.fused.tiles import Tile, tile_for

__all__ = [
    "activate",
    "convolve",
    "convolve_and_sum",
    "moments",
    "norm_of_batch",
    "place_of",
    "standardise",
]


@triton.jit
def place_of(pixel, rows: tl.constexpr, columns: tl.constexpr):
    """Image, row and column of pixels that are counted through the whole batch."""
    return pixel // (rows * columns), pixel % (rows * columns) // columns, pixel % columns


@triton.jit
def _taps(
    source,
    weights,
    pixel,
    exists,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """The convolution at a block of output pixels.

    With ACROSS = 1 it is nine matrix products, one for each tap. The three taps of a row lie side
    by side in memory, so with ACROSS = 4 (the next power of two) it is three wider products.
    """
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    image, y, x = place_of(pixel, rows, columns)
    after = tl.arange(0, AFTER)
    inner = tl.arange(0, ACROSS * BEFORE)
    steps: tl.constexpr = 9 if ACROSS == 1 else 3
    taps: tl.constexpr = 1 if ACROSS == 1 else 3
    total = tl.zeros((BLOCK, AFTER), tl.float32)
    for step in range(steps):
        row = y * STRIDE - 1 + step * taps // 3
        column = x * STRIDE - 1 + step * taps % 3
        place = (image * HEIGHT + row) * WIDTH + column
        across = column[:, None] + inner[None, :] // BEFORE
        inside = (exists & (row >= 0) & (row < HEIGHT))[:, None] & (across >= 0) & (across < WIDTH)
        known = inner < taps * BEFORE
        values = tl.load(
            source + place[:, None] * BEFORE + inner[None, :],
            mask=inside & known[None, :],
            other=0.0,
        )
        kernel = tl.load(
            weights + after[None, :] * (9 * BEFORE) + step * (taps * BEFORE) + inner[:, None],
            mask=known[:, None],
            other=0.0,
        )
        total = tl.dot(values, kernel, total)
    return total


@triton.jit
def _shortcut(
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
def _convolve(
    source,
    weights,
    shortcut,
    scale,
    shift,
    raw_out,
    active_out,
    sums,
    pixels,
    TOTAL: tl.constexpr,
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
    TRAINING: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
):
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = pixel < pixels
    total = _taps(
        source, weights, pixel, exists, HEIGHT, WIDTH, BEFORE, AFTER, STRIDE, BLOCK, ACROSS
    )
    if SHORTCUT_HEIGHT > 0:
        total += _shortcut(
            shortcut,
            pixel,
            exists,
            rows,
            columns,
            AFTER,
            SHORTCUT_HEIGHT,
            SHORTCUT_WIDTH,
            SHORTCUT_CHANNELS,
            BLOCK,
        )
    after = tl.arange(0, AFTER)
    place = pixel[:, None] * AFTER + after[None, :]
    if KEEPS_RAW:
        tl.store(raw_out + place, total.to(raw_out.dtype.element_ty), mask=exists[:, None])
    if TRAINING:
        # Of what was written, not of what it was rounded from: the norm's output has mean 0.
        kept = total.to(raw_out.dtype.element_ty).to(tl.float32)
        tl.atomic_add(sums + after, tl.sum(kept, 0))
        tl.atomic_add(sums + TOTAL + after, tl.sum(kept * kept, 0))
    else:
        normed = total * tl.load(scale + after)[None, :] + tl.load(shift + after)[None, :]
        normed = tl.maximum(normed, normed * SLOPE)
        tl.store(active_out + place, normed.to(active_out.dtype.element_ty), mask=exists[:, None])


@triton.jit
def norm_of_batch(sums, channel, count, EPSILON: tl.constexpr, TOTAL: tl.constexpr):
    """Mean and inverse deviation of each channel, from its sum and its sum of squares."""
    mean = tl.load(sums + channel) / count
    variance = tl.load(sums + TOTAL + channel) / count - mean * mean
    return mean, 1 / tl.sqrt(tl.maximum(variance, 0.0) + EPSILON)


@triton.jit
def _activate(
    raw,
    sums,
    scale,
    shift,
    out,
    pixels,
    CHANNELS: tl.constexpr,
    SLOPE: tl.constexpr,
    EPSILON: tl.constexpr,
    TOTAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    channel = tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = pixel[:, None] * CHANNELS + channel[None, :]
    exists = (pixel < pixels)[:, None]
    mean, inverse = norm_of_batch(sums, channel, pixels, EPSILON, TOTAL)
    factor = inverse * tl.load(scale + channel)
    offset = tl.load(shift + channel) - mean * factor
    values = tl.load(raw + place, mask=exists, other=0.0).to(tl.float32)
    normed = values * factor[None, :] + offset[None, :]
    active = tl.maximum(normed, normed * SLOPE)
    tl.store(out + place, active.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _moments(sums, counts, out, TOTAL: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = channel < TOTAL
    count = tl.load(counts + channel, mask=known, other=2.0)
    mean = tl.load(sums + channel, mask=known, other=0.0) / count
    square = tl.load(sums + TOTAL + channel, mask=known, other=0.0) / count
    variance = tl.maximum(square - mean * mean, 0.0) * (count / (count - 1))
    tl.store(out + channel, mean, mask=known)
    tl.store(out + TOTAL + channel, variance, mask=known)


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
    with torch.cuda.device_of(images):
        _standardise[(count,)](
            images, out, least, height * width, channels, padded, block, num_warps=8
        )
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
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:
    """Convolve, add the shortcut, then norm and activate, in evaluation mode.

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
        tile: how to cut the work, by default as measured.

    Returns:
        The sum before the norm (empty unless it was asked for), and the activations.
    """
    shape = _shape_after(active, after, stride)
    out = active.new_empty(shape)
    raw = active.new_empty(shape if keeps_raw else (0,))
    _launch(
        active,
        weights,
        shortcut,
        scale,
        shift,
        raw,
        out,
        scale,
        total=0,
        stride=stride,
        slope=slope,
        keeps_raw=keeps_raw,
        tile=tile,
    )
    return raw, out


def convolve_and_sum(
    active: Tensor,
    weights: Tensor,
    sums: Tensor,
    *,
    after: int,
    stride: int = 1,
    shortcut: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Convolve, add the shortcut, and sum each channel and its square over the batch.

    ``sums`` are two rows with ``after`` places each, to which both are added. The other arguments
    are those of ``convolve``.
    """
    raw = active.new_empty(_shape_after(active, after, stride))
    _launch(
        active,
        weights,
        shortcut,
        sums,
        sums,
        raw,
        raw,
        sums,
        total=sums.stride(0),
        stride=stride,
        slope=0.0,
        keeps_raw=True,
        tile=tile,
    )
    return raw


def _shape_after(active: Tensor, after: int, stride: int) -> tuple[int, int, int, int]:
    count, height, width, _ = active.shape
    return count, -(-height // stride), -(-width // stride), after


def _launch(
    active: Tensor,
    weights: Tensor,
    shortcut: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    raw: Tensor,
    out: Tensor,
    sums: Tensor,
    *,
    total: int,
    stride: int,
    slope: float,
    keeps_raw: bool,
    tile: Tile | None,
) -> None:
    count, _, _, before = active.shape
    after = len(weights) // (9 * before)
    pixels = out.numel() // after
    added = (0, 0, 0) if shortcut is None else tuple(shortcut.shape[1:])
    tile = tile or tile_for("forward", before=before, after=after, images=count)
    with torch.cuda.device_of(active):
        _convolve[(triton.cdiv(pixels, tile.block),)](
            active,
            weights,
            out if shortcut is None else shortcut,
            scale,
            shift,
            raw,
            out,
            sums,
            pixels,
            total,
            *active.shape[1:],
            after,
            stride,
            slope,
            *added,
            keeps_raw,
            total > 0,
            BLOCK=tile.block,
            ACROSS=tile.across,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )


def activate(
    raw: Tensor, sums: Tensor, scale: Tensor, shift: Tensor, *, slope: float, epsilon: float
) -> Tensor:
    """Norm by the statistics of the batch, and activate.

    Args:
        raw: N x H x W x C, contiguous.
        sums: of each channel and its square, by ``convolve_and_sum``.
        scale: the norm's factors, float32.
        shift: the norm's offsets, float32.
        slope: of the leaky ReLU.
        epsilon: added to the variance.
    """
    out, channels = torch.empty_like(raw), raw.shape[3]
    pixels, block = raw.numel() // channels, 2048 // channels
    with torch.cuda.device_of(raw):
        _activate[(triton.cdiv(pixels, block),)](
            raw, sums, scale, shift, out, pixels, channels, slope, epsilon, sums.stride(0), block
        )
    return out


def moments(sums: Tensor, counts: Tensor) -> Tensor:
    """Give mean and unbiased variance of each channel, two rows like ``sums``.

    Args:
        sums: of each channel and its square, two rows, contiguous.
        counts: over how many pixels each goes, float32.
    """
    out, block = torch.empty_like(sums), 256
    with torch.cuda.device_of(sums):
        _moments[(triton.cdiv(len(counts), block),)](sums, counts, out, len(counts), block)
    return out
