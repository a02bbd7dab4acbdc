"""Triton kernels of a convolution's gradients, the counterparts of ``convolution_kernels``.

From the gradient of a convolution's output come the gradient of its weights and that of its input.
The latter goes on, while it is in registers, through the leaky ReLU before it, and then:

- in evaluation mode through the norm, an affine map, and the shortcut's gradient is added;
- in training mode a norm's gradient needs two sums over the whole batch, which are also those of
  its own offsets and factors: they are collected here, and ``norm_backward`` goes on when all are
  in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from upright.models.fused.norm_kernels import norm_of_batch
from upright.models.fused.shortcut_kernels import place_of, shortcut_gradient, shortcut_stride
from upright.models.fused.triton_tiles import Tile, tile_for

__all__ = ["gradient_before_norm", "gradient_of_inputs", "gradient_of_weights"]


@triton.jit
def _gradient_taps(
    gradient,
    weights,
    image,
    y,
    x,
    exists,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """The gradient of a convolution's input at a block of its pixels.

    It is itself a convolution, with the taps in the opposite order; see ``_taps`` for ACROSS.
    """
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    before = tl.arange(0, BEFORE)
    inner = tl.arange(0, ACROSS * AFTER)
    after = inner % AFTER
    steps: tl.constexpr = 9 if ACROSS == 1 else 3
    taps: tl.constexpr = 1 if ACROSS == 1 else 3
    known = inner < taps * AFTER
    total = tl.zeros((BLOCK, BEFORE), tl.float32)
    for step in range(steps):
        far_row = y - 1 + step * taps // 3
        far_column = x[:, None] - 1 + step * taps % 3 + inner[None, :] // AFTER
        row, column = far_row // STRIDE, far_column // STRIDE
        met = (far_row >= 0) & (row < rows) & (far_row % STRIDE == 0)
        inside = (exists & met)[:, None] & (far_column >= 0) & (column < columns)
        inside = inside & (far_column % STRIDE == 0) & known[None, :]
        place = (image[:, None] * rows + row[:, None]) * columns + column
        values = tl.load(gradient + place * AFTER + after[None, :], mask=inside, other=0.0)
        tap = 8 - (step * taps + inner // AFTER)
        kernel = tl.load(
            weights + (after * (9 * BEFORE) + tap * BEFORE)[:, None] + before[None, :],
            mask=known[:, None],
            other=0.0,
        )
        total = tl.dot(values, kernel, total)
    return total


@triton.jit
def _gradient_of_inputs(
    gradient,
    weights,
    values,
    sums,
    scale,
    shift,
    shortcut,
    out,
    gradient_sums,
    pixels,
    TOTAL: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    STRIDE: tl.constexpr,
    SLOPE: tl.constexpr,
    EPSILON: tl.constexpr,
    SHORTCUT_STRIDE: tl.constexpr,  # 0 where there is none
    SHORTCUT_CHANNELS: tl.constexpr,
    ACTIVE_SHORTCUT: tl.constexpr,
    TRAINING: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
):
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = pixel < pixels
    image, y, x = place_of(pixel, HEIGHT, WIDTH)
    total = _gradient_taps(
        gradient,
        weights,
        image,
        y,
        x,
        exists,
        HEIGHT,
        WIDTH,
        BEFORE,
        AFTER,
        STRIDE,
        BLOCK,
        ACROSS,
    )
    channel = tl.arange(0, BEFORE)
    place = pixel[:, None] * BEFORE + channel[None, :]
    added = tl.zeros((BLOCK, BEFORE), tl.float32)
    if SHORTCUT_STRIDE > 0:
        added = shortcut_gradient(
            shortcut, image, y, x, exists, HEIGHT, WIDTH, BEFORE, SHORTCUT_STRIDE, SHORTCUT_CHANNELS
        )
    if ACTIVE_SHORTCUT:
        total += added
    known = tl.load(values + place, mask=exists[:, None], other=0.0).to(tl.float32)
    factor = tl.load(scale + channel)
    if TRAINING:
        mean, inverse = norm_of_batch(sums, channel, pixels, EPSILON, TOTAL)
        normal = (known - mean[None, :]) * inverse[None, :]
        normed = normal * factor[None, :] + tl.load(shift + channel)[None, :]
        total = tl.where(normed > 0, total, total * SLOPE).to(out.dtype.element_ty)
        kept = tl.where(exists[:, None], total.to(tl.float32), 0.0)
        tl.atomic_add(gradient_sums + channel, tl.sum(kept, 0))
        tl.atomic_add(gradient_sums + TOTAL + channel, tl.sum(kept * normal, 0))
    else:
        # The leaky ReLU keeps the sign: what came out of it tells what went in.
        total = tl.where(known > 0, total, total * SLOPE) * factor[None, :]
        if not ACTIVE_SHORTCUT:
            total += added
        total = total.to(out.dtype.element_ty)
    tl.store(out + place, total, mask=exists[:, None])


@triton.jit
def _gradient_of_weights(
    active,
    gradient,
    out,
    PIXELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One program sums one tap (a row of taps, with ACROSS = 4) over a part of the pixels."""
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    taps: tl.constexpr = 1 if ACROSS == 1 else 3
    tap = tl.program_id(1) * taps
    after = tl.arange(0, AFTER)
    inner = tl.arange(0, ACROSS * BEFORE)
    known = inner < taps * BEFORE
    total = tl.zeros((AFTER, ACROSS * BEFORE), tl.float32)
    turns: tl.constexpr = (PIXELS + BLOCK * SPLITS - 1) // (BLOCK * SPLITS)
    for turn in range(turns):
        pixel = (turn * SPLITS + tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
        exists = pixel < PIXELS
        image, y, x = place_of(pixel, rows, columns)
        row, column = y * STRIDE - 1 + tap // 3, x * STRIDE - 1 + tap % 3
        across = column[:, None] + inner[None, :] // BEFORE
        inside = (exists & (row >= 0) & (row < HEIGHT))[:, None] & (across >= 0) & (across < WIDTH)
        place = (image * HEIGHT + row) * WIDTH + column
        values = tl.load(
            active + place[:, None] * BEFORE + inner[None, :],
            mask=inside & known[None, :],
            other=0.0,
        )
        found = tl.load(
            gradient + pixel[:, None] * AFTER + after[None, :], mask=exists[:, None], other=0.0
        )
        total = tl.dot(tl.trans(found), values, total)
    place = out + after[:, None] * (9 * BEFORE) + tap * BEFORE + inner[None, :]
    tl.atomic_add(place, total, mask=known[None, :] & (after >= 0)[:, None])


def gradient_before_norm(
    gradient: Tensor,
    weights: Tensor,
    raw: Tensor,
    sums: Tensor,
    scale: Tensor,
    shift: Tensor,
    gradient_sums: Tensor,
    *,
    stride: int = 1,
    slope: float,
    epsilon: float,
    active_shortcut: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """In training mode: the gradient between norm and leaky ReLU, and its sums.

    Args:
        gradient: of the convolution's output, N x H x W x C, contiguous.
        weights: of the convolution, as in ``convolve``.
        raw: what the norm before the convolution saw, N x H x W x C.
        sums: of each channel of ``raw`` and its square.
        scale: the norm's factors, float32.
        shift: the norm's offsets, float32.
        gradient_sums: two rows, to which the gradients of the norm's offsets and factors are added.
        stride: of the convolution.
        slope: of the leaky ReLU.
        epsilon: added to the variance.
        active_shortcut: a further gradient of what comes out of the leaky ReLU.
        tile: how to cut the work, by default as measured.
    """
    return _launch(
        gradient,
        weights,
        raw,
        sums,
        scale,
        shift,
        gradient_sums,
        stride=stride,
        slope=slope,
        epsilon=epsilon,
        total=sums.stride(0),
        shortcut=active_shortcut,
        active=True,
        tile=tile,
    )


def gradient_of_inputs(
    gradient: Tensor,
    weights: Tensor,
    active: Tensor,
    scale: Tensor | None = None,
    *,
    stride: int = 1,
    slope: float,
    shortcut: Tensor | None = None,
    shortcut_is_active: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """In evaluation mode: the gradient before norm and leaky ReLU, that of the shortcut included.

    Args:
        gradient: of the convolution's output, N x H x W x C, contiguous.
        weights: of the convolution, as in ``convolve``.
        active: what the convolution saw.
        scale: factors of the norm before the leaky ReLU; None where there is neither.
        stride: of the convolution.
        slope: of the leaky ReLU.
        shortcut: the gradient of the block's output, where its shortcut begins here.
        shortcut_is_active: the shortcut begins after norm and leaky ReLU.
        tile: how to cut the work, by default as measured.
    """
    plain = scale is None
    scale = torch.ones(active.shape[3], device=active.device) if scale is None else scale
    return _launch(
        gradient,
        weights,
        active,
        scale,
        scale,
        scale,
        None,
        stride=stride,
        slope=1.0 if plain else slope,
        epsilon=0.0,
        total=0,
        shortcut=shortcut,
        active=shortcut_is_active,
        tile=tile,
    )


def _launch(
    gradient: Tensor,
    weights: Tensor,
    values: Tensor,
    sums: Tensor,
    scale: Tensor,
    shift: Tensor,
    gradient_sums: Tensor | None,
    *,
    stride: int,
    slope: float,
    epsilon: float,
    total: int,
    shortcut: Tensor | None,
    active: bool,
    tile: Tile | None,
) -> Tensor:
    out = torch.empty_like(values)
    count, height, width, before = values.shape
    pixels, after = count * height * width, gradient.shape[3]
    tile = tile or tile_for("inputs", before=before, after=after, images=count)
    shortcut_by = shortcut_stride(shortcut, values)
    with torch.cuda.device_of(values):
        _gradient_of_inputs[(triton.cdiv(pixels, tile.block),)](
            gradient,
            weights,
            values,
            sums,
            scale,
            shift,
            out if shortcut is None else shortcut,
            out,
            out if gradient_sums is None else gradient_sums,
            pixels,
            total,
            height,
            width,
            before,
            after,
            stride,
            slope,
            epsilon,
            shortcut_by,
            0 if shortcut is None else shortcut.shape[3],
            active,
            gradient_sums is not None,
            BLOCK=tile.block,
            ACROSS=tile.across,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def gradient_of_weights(
    active: Tensor, gradient: Tensor, out: Tensor, *, stride: int, tile: Tile | None = None
) -> None:
    """Add the gradient of a convolution's weights to ``out``: after x 3 x 3 x before, float32."""
    count, height, width, before = active.shape
    after = gradient.shape[3]
    tile = tile or tile_for("weights", before=before, after=after, images=count)
    with torch.cuda.device_of(active):
        _gradient_of_weights[(tile.splits, 9 if tile.across == 1 else 3)](
            active,
            gradient,
            out,
            gradient.numel() // after,
            height,
            width,
            before,
            after,
            stride,
            BLOCK=tile.block,
            ACROSS=tile.across,
            SPLITS=tile.splits,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
