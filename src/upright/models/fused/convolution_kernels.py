"""Triton kernels of a 3x3 convolution, with all that stands around it.

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

from upright.models.fused.shortcut_kernels import place_of, shortcut_at
from upright.models.fused.triton_tiles import Tile, tile_for

__all__ = ["convolve", "convolve_and_sum"]


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
        total += shortcut_at(
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
