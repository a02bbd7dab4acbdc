"""Triton kernels of a norm in training mode, which needs sums over the whole batch.

Those of its input are made by the convolution before it, and those of its gradient by what comes
after it; these kernels run when all are in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from upright.models.fused.shortcut_kernels import place_of, shortcut_gradient, shortcut_stride

__all__ = ["activate", "moments", "norm_backward", "norm_of_batch"]


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
def _norm_backward(
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
    SHORTCUT_STRIDE: tl.constexpr,  # 0 where there is none
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
    if SHORTCUT_STRIDE > 0:
        image, y, x = place_of(pixel, HEIGHT, WIDTH)
        total += shortcut_gradient(
            shortcut,
            image,
            y,
            x,
            exists,
            HEIGHT,
            WIDTH,
            CHANNELS,
            SHORTCUT_STRIDE,
            SHORTCUT_CHANNELS,
        )
    tl.store(out + place, total.to(out.dtype.element_ty), mask=exists[:, None])


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


def norm_backward(
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
    shortcut_by = shortcut_stride(shortcut, raw)
    with torch.cuda.device_of(raw):
        _norm_backward[(triton.cdiv(pixels, block),)](
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
            shortcut_by,
            0 if shortcut is None else shortcut.shape[3],
            block,
        )
    return out
