"""Triton kernels of what comes first: each image gets mean 0 and deviation 1.

They also change the layout: images are N x C x H x W, and what kernels convolve is N x H x W x C.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["MOST_PIXELS", "standardise", "standardise_backward"]

MOST_PIXELS = 4096
"""The most pixels of an image, all of which a program holds at once."""


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


def standardise(images: Tensor, dtype: torch.dtype, *, padded: int, least: float) -> Tensor:
    """Give each image mean 0 and deviation 1 and lay it out for ``convolution_kernels``.

    Args:
        images: N x C x H x W, float32, contiguous, of at most ``MOST_PIXELS``.
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
