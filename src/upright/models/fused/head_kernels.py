"""Triton kernels of what follows the last activations: their average, and the linear layer.

Both are small, and made of tensor operations they are ten kernels. Here they are one forward, with
a program for each image, and two backward: to the averages, with a program for each image and each
class, and from these to the last activations.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from upright.models.fused.norm_kernels import norm_of_batch

__all__ = ["averaged_logits", "gradient_of_averages", "pooled_gradient"]


@triton.jit
def _averaged_logits(
    features,
    weight,
    bias,
    averages,
    logits,
    PIXELS: tl.constexpr,  # of one image
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    BLOCK: tl.constexpr,
    CLASSES: tl.constexpr,  # that are taken at once
):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BEFORE)
    total = tl.zeros((BEFORE,), tl.float32)
    for start in range(0, PIXELS, BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        place = (image * PIXELS + pixel)[:, None] * BEFORE + channel[None, :]
        values = tl.load(features + place, mask=(pixel < PIXELS)[:, None], other=0.0)
        total += tl.sum(values.to(tl.float32), 0)
    average = total / PIXELS
    tl.store(averages + image * BEFORE + channel, average)
    for start in range(0, AFTER, CLASSES):
        label = start + tl.arange(0, CLASSES)
        place = label[:, None] * BEFORE + channel[None, :]
        rows = tl.load(weight + place, mask=(label < AFTER)[:, None], other=0.0)
        found = tl.sum(rows * average[None, :], 1)
        found += tl.load(bias + label, mask=label < AFTER, other=0.0)
        tl.store(logits + image * AFTER + label, found, mask=label < AFTER)


@triton.jit(do_not_specialize=["images"])
def _gradient_of_averages(
    gradient,
    averages,
    weight,
    out,
    weight_out,
    bias_out,
    images,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    BLOCK: tl.constexpr,  # images or classes that are taken at once
):
    program = tl.program_id(0)
    channel = tl.arange(0, BEFORE)
    total = tl.zeros((BEFORE,), tl.float32)
    if program < images:
        for start in range(0, AFTER, BLOCK):
            label = start + tl.arange(0, BLOCK)
            slope = tl.load(gradient + program * AFTER + label, mask=label < AFTER, other=0.0)
            place = label[:, None] * BEFORE + channel[None, :]
            rows = tl.load(weight + place, mask=(label < AFTER)[:, None], other=0.0)
            total += tl.sum(rows * slope[:, None], 0)
        tl.store(out + program * BEFORE + channel, total)
    else:
        label_here = program - images
        bias_total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, images, BLOCK):
            image = start + tl.arange(0, BLOCK)
            slope = tl.load(gradient + image * AFTER + label_here, mask=image < images, other=0.0)
            place = image[:, None] * BEFORE + channel[None, :]
            rows = tl.load(averages + place, mask=(image < images)[:, None], other=0.0)
            total += tl.sum(rows * slope[:, None], 0)
            bias_total += slope
        tl.store(weight_out + label_here * BEFORE + channel, total)
        tl.store(bias_out + label_here, tl.sum(bias_total, 0))


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


def averaged_logits(features: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Average over pixels, then apply the linear layer.

    Args:
        features: N x H x W x C, contiguous; C is a power of two.
        weight: classes x C, float32, contiguous.
        bias: of each class, float32.

    Returns:
        The averages, N x C, and the logits, both float32.
    """
    count, height, width, channels = features.shape
    averages = weight.new_empty((count, channels))
    logits = weight.new_empty((count, len(weight)))
    with torch.cuda.device_of(features):
        _averaged_logits[(count,)](
            features,
            weight,
            bias,
            averages,
            logits,
            height * width,
            channels,
            len(weight),
            BLOCK=64,
            CLASSES=16,
        )
    return averages, logits


def gradient_of_averages(
    gradient: Tensor, averages: Tensor, weight: Tensor, *, with_weights: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient of logits to those of averages, weight and bias.

    Args:
        gradient: N x classes, float32, contiguous.
        averages: N x C, by ``averaged_logits``.
        weight: as there.
        with_weights: also give the gradients of weight and bias, which are empty otherwise.
    """
    out = torch.empty_like(averages)
    classes, channels = weight.shape
    of_weight = torch.empty_like(weight if with_weights else weight[:0])
    of_bias = weight.new_empty(len(of_weight))
    with torch.cuda.device_of(gradient):
        _gradient_of_averages[(len(gradient) + len(of_weight),)](
            gradient,
            averages,
            weight,
            out,
            of_weight,
            of_bias,
            len(gradient),
            channels,
            classes,
            BLOCK=32,
        )
    return out, of_weight, of_bias


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
