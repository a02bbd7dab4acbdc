"""Triton kernels of a backward pass, the counterparts of ``forward_kernels``.

From the gradient of a convolution's output come the gradient of its weights and that of its input.
The latter goes on, while it is in registers, through the leaky ReLU before it, and then:

- in evaluation mode through the norm, an affine map, and the shortcut's gradient is added;
- in training mode a norm's gradient needs two sums over the whole batch, which are also those of
  its own offsets and factors: they are collected here, and ``join`` goes on when all are in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from upright.models.fused.forward_kernels import norm_of_batch, place_of
from upright.models.fused.tiles import Tile, tile_for

__all__ = [
    "gradient_before_norm",
    "gradient_of_inputs",
    "gradient_of_weights",
    "join",
    "pooled_gradient",
    "standardise_backward",
]


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
def _shortcut_gradient(
    gradient,
    image,
    y,
    x,
    exists,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    SHORTCUT: tl.constexpr,  # 1 as it is, 2 averaged and padded
    SHORTCUT_CHANNELS: tl.constexpr,
):
    """The gradient that reaches a block's input through its shortcut."""
    rows: tl.constexpr = (HEIGHT + SHORTCUT - 1) // SHORTCUT
    columns: tl.constexpr = (WIDTH + SHORTCUT - 1) // SHORTCUT
    channel = tl.arange(0, CHANNELS) + (SHORTCUT_CHANNELS - CHANNELS) // 2
    row, column = y // SHORTCUT, x // SHORTCUT
    place = ((image * rows + row) * columns + column)[:, None] * SHORTCUT_CHANNELS
    found = tl.load(gradient + place + channel[None, :], mask=exists[:, None], other=0.0)
    high = tl.minimum(HEIGHT - row * SHORTCUT, SHORTCUT)
    wide = tl.minimum(WIDTH - column * SHORTCUT, SHORTCUT)
    return found.to(tl.float32) / (high * wide).to(tl.float32)[:, None]


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
    SHORTCUT: tl.constexpr,  # 0 none, 1 as it is, 2 averaged and padded
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
    if SHORTCUT > 0:
        added = _shortcut_gradient(
            shortcut, image, y, x, exists, HEIGHT, WIDTH, BEFORE, SHORTCUT, SHORTCUT_CHANNELS
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
def _join(
    gradient,
    raw,
    sums,
    gradient_sums,
    scale,
    shortcut,
    out,
    pixels,
    TOTAL: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    EPSILON: tl.constexpr,
    SHORTCUT: tl.constexpr,  # 0 none, 1 as it is, 2 averaged and padded
    SHORTCUT_CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    channel = tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = pixel < pixels
    place = pixel[:, None] * CHANNELS + channel[None, :]
    mean, inverse = norm_of_batch(sums, channel, pixels, EPSILON, TOTAL)
    middle = tl.load(gradient_sums + channel) / pixels
    tilt = tl.load(gradient_sums + TOTAL + channel) / pixels
    values = tl.load(raw + place, mask=exists[:, None], other=0.0).to(tl.float32)
    normal = (values - mean[None, :]) * inverse[None, :]
    found = tl.load(gradient + place, mask=exists[:, None], other=0.0).to(tl.float32)
    factor = tl.load(scale + channel) * inverse
    total = factor[None, :] * (found - middle[None, :] - normal * tilt[None, :])
    if SHORTCUT > 0:
        image, y, x = place_of(pixel, HEIGHT, WIDTH)
        total += _shortcut_gradient(
            shortcut, image, y, x, exists, HEIGHT, WIDTH, CHANNELS, SHORTCUT, SHORTCUT_CHANNELS
        )
    tl.store(out + place, total.to(out.dtype.element_ty), mask=exists[:, None])


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


@triton.jit
def _pooled_gradient(
    gradient,
    values,
    sums,
    scale,
    shift,
    out,
    gradient_sums,
    pixels,
    PIXELS: tl.constexpr,  # of one image
    TOTAL: tl.constexpr,
    CHANNELS: tl.constexpr,
    SLOPE: tl.constexpr,
    EPSILON: tl.constexpr,
    TRAINING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    channel = tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = (pixel < pixels)[:, None]
    place = pixel[:, None] * CHANNELS + channel[None, :]
    source = (pixel // PIXELS)[:, None] * CHANNELS + channel[None, :]
    total = tl.load(gradient + source, mask=exists, other=0.0) / PIXELS
    known = tl.load(values + place, mask=exists, other=0.0).to(tl.float32)
    factor = tl.load(scale + channel)
    if TRAINING:
        mean, inverse = norm_of_batch(sums, channel, pixels, EPSILON, TOTAL)
        normal = (known - mean[None, :]) * inverse[None, :]
        normed = normal * factor[None, :] + tl.load(shift + channel)[None, :]
        total = tl.where(normed > 0, total, total * SLOPE).to(out.dtype.element_ty)
        kept = total.to(tl.float32)
        tl.atomic_add(gradient_sums + channel, tl.sum(kept, 0))
        tl.atomic_add(gradient_sums + TOTAL + channel, tl.sum(kept * normal, 0))
    else:
        total = tl.where(known > 0, total, total * SLOPE) * factor[None, :]
        total = total.to(out.dtype.element_ty)
    tl.store(out + place, total, mask=exists)


@triton.jit
def _standardise_backward(
    images,
    gradient,
    out,
    least,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    values: tl.constexpr = PIXELS * CHANNELS
    pixel = tl.arange(0, BLOCK)[:, None]
    channel = tl.arange(0, PADDED)[None, :]
    inside = (pixel < PIXELS) & (channel < CHANNELS)
    place = image * values + channel * PIXELS + pixel
    source = tl.load(images + place, mask=inside, other=0.0)
    centred = tl.where(inside, source - tl.sum(tl.sum(source, 1), 0) / values, 0.0)
    deviation = tl.sqrt(tl.sum(tl.sum(centred * centred, 1), 0) / values)
    found = tl.load(
        gradient + image * (PIXELS * PADDED) + pixel * PADDED + channel, mask=inside, other=0.0
    ).to(tl.float32)
    middle = tl.sum(tl.sum(found, 1), 0) / values
    # Where the deviation is at its lower bound it is a constant.
    bound = tl.maximum(deviation, least)
    tilt = tl.where(deviation > least, tl.sum(tl.sum(found * centred, 1), 0) / values, 0.0)
    total = (found - middle - centred * tilt / (bound * bound)) / bound
    tl.store(out + place, total, mask=inside)


def standardise_backward(images: Tensor, gradient: Tensor, *, least: float) -> Tensor:
    """The gradient of images from that of ``standardise(images, ...)``."""
    count, channels, height, width = images.shape
    out = torch.empty_like(images)
    block = triton.next_power_of_2(height * width)
    with torch.cuda.device_of(images):
        _standardise_backward[(count,)](
            images,
            gradient,
            out,
            least,
            height * width,
            channels,
            gradient.shape[3],
            block,
            num_warps=8,
        )
    return out


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
    kind = 0 if shortcut is None else 1 if shortcut.shape == values.shape else 2
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
            kind,
            0 if shortcut is None else shortcut.shape[3],
            active,
            gradient_sums is not None,
            BLOCK=tile.block,
            ACROSS=tile.across,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def join(
    gradient: Tensor,
    raw: Tensor,
    sums: Tensor,
    gradient_sums: Tensor,
    scale: Tensor,
    *,
    epsilon: float,
    shortcut: Tensor | None = None,
) -> Tensor:
    """Go back through a norm in training mode, and add the gradient of the shortcut."""
    out = torch.empty_like(raw)
    count, height, width, channels = raw.shape
    pixels, block = count * height * width, 2048 // channels
    kind = 0 if shortcut is None else 1 if shortcut.shape == raw.shape else 2
    with torch.cuda.device_of(raw):
        _join[(triton.cdiv(pixels, block),)](
            gradient,
            raw,
            sums,
            gradient_sums,
            scale,
            out if shortcut is None else shortcut,
            out,
            pixels,
            sums.stride(0),
            height,
            width,
            channels,
            epsilon,
            kind,
            0 if shortcut is None else shortcut.shape[3],
            block,
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


def pooled_gradient(
    gradient: Tensor,
    values: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    slope: float,
    epsilon: float = 0.0,
    sums: Tensor | None = None,
    gradient_sums: Tensor | None = None,
) -> Tensor:
    """From the gradient of averages over all pixels back through the leaky ReLU before them.

    In training mode (with sums, and ``values`` before the norm) up to the norm, in evaluation mode
    (with ``values`` after the leaky ReLU) through the norm as well.
    """
    out, channels = torch.empty_like(values), values.shape[3]
    pixels, block = values.numel() // channels, 2048 // channels
    with torch.cuda.device_of(values):
        _pooled_gradient[(triton.cdiv(pixels, block),)](
            gradient,
            values,
            scale if sums is None else sums,
            scale,
            shift,
            out,
            out if gradient_sums is None else gradient_sums,
            pixels,
            values.shape[1] * values.shape[2],
            0 if sums is None else sums.stride(0),
            channels,
            slope,
            epsilon,
            sums is not None,
            block,
        )
    return out
