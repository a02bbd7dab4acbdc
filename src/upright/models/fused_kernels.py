"""The Triton kernel of ``fused``: a 3x3 convolution with all that stands around it.

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

__all__ = ["convolve"]

_CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
    for block, warps, stages in ((64, 4, 3), (128, 4, 3), (128, 8, 3), (256, 8, 2))
]


@triton.autotune(_CONFIGS, key=["pixels", "BEFORE", "AFTER", "STRIDE"])
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
    HAS_SHORTCUT: tl.constexpr,
    KEEPS_RAW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = pixel < pixels
    image = pixel // (rows * columns)
    y = pixel % (rows * columns) // columns * STRIDE - 1
    x = pixel % columns * STRIDE - 1
    before = tl.arange(0, BEFORE)
    after = tl.arange(0, AFTER)
    total = tl.zeros((BLOCK, AFTER), tl.float32)
    for tap in range(9):
        row, column = y + tap // 3, x + tap % 3
        inside = exists & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        place = (image * HEIGHT + row) * WIDTH + column
        values = tl.load(
            active + place[:, None] * BEFORE + before[None, :], mask=inside[:, None], other=0.0
        )
        kernel = tl.load(weights + after[None, :] * (9 * BEFORE) + tap * BEFORE + before[:, None])
        total = tl.dot(values, kernel, total)
    place = pixel[:, None] * AFTER + after[None, :]
    if HAS_SHORTCUT:
        total += tl.load(shortcut + place, mask=exists[:, None], other=0.0).to(tl.float32)
    if KEEPS_RAW:
        tl.store(raw_out + place, total.to(raw_out.dtype.element_ty), mask=exists[:, None])
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
        shortcut: what to add to the convolution, like the output.
        keeps_raw: also give the sum before the norm.

    Returns:
        The sum before the norm (empty unless it was asked for), and the activations.
    """
    count, height, width, before = active.shape
    shape = (count, -(-height // stride), -(-width // stride), after)
    out = active.new_empty(shape)
    raw = active.new_empty(shape if keeps_raw else (0,))
    pixels = shape[0] * shape[1] * shape[2]

    def grid(config: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(pixels, config["BLOCK"]),)

    with torch.cuda.device_of(active):
        _convolve[grid](
            active,
            weights,
            shortcut if shortcut is not None else out,
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
            shortcut is not None,
            keeps_raw,
        )
    return raw, out
