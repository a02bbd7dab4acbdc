"""The rows of a batch in one Triton kernel: taken, made float, mirrored; with their labels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["take_rows"]


@triton.jit
def _take_rows(
    images,
    labels,
    rows,
    draws,
    images_out,
    labels_out,
    WIDTH: tl.constexpr,
    VALUES: tl.constexpr,  # of an image
    MIRRORS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + item)
    value = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = value
    if MIRRORS:
        mirrored = value - value % WIDTH + (WIDTH - 1 - value % WIDTH)
        source = tl.where(tl.load(draws + item) < 0.5, mirrored, value)
    found = tl.load(images + row * VALUES + source, mask=value < VALUES, other=0)
    place = images_out + item * VALUES + value
    tl.store(place, found.to(tl.float32) * (1 / 255), mask=value < VALUES)
    if tl.program_id(1) == 0:
        tl.store(labels_out + item, tl.load(labels + row))


def take_rows(
    images: Tensor, labels: Tensor, rows: Tensor, draws: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Take rows of images and labels.

    Args:
        images: N x C x H x W, uint8, contiguous.
        labels: N, contiguous.
        rows: numbers of rows, contiguous.
        draws: one for each row: where it is below 1/2, the image is mirrored. None mirrors nothing.

    Returns:
        Images, float32 in [0, 1], and labels.
    """
    shape = images.shape[1:]
    images_out = images.new_empty((len(rows), *shape), dtype=torch.float32)
    labels_out = labels.new_empty(len(rows))
    block = 1024
    with torch.cuda.device_of(images):
        _take_rows[(len(rows), triton.cdiv(shape.numel(), block))](
            images,
            labels,
            rows,
            images_out if draws is None else draws,
            images_out,
            labels_out,
            shape[-1],
            shape.numel(),
            draws is not None,
            block,
        )
    return images_out, labels_out
