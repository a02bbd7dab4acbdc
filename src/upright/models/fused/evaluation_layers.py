"""A ResNet in evaluation mode layer by layer, in Triton's kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.models.fused.weight_layout import PADDED, Layers, Weights
from upright.models.resnet import SLOPE, ResNet

__all__ = ["layer", "residual_block", "standard_images"]


def standard_images(model: ResNet, images: Tensor, dtype: torch.dtype) -> Tensor:
    """Standardise images and lay them out for the kernels: N x H x W x 16."""
    from upright.models.fused.standardise_kernels import MOST_PIXELS, standardise

    if images[0, 0].numel() <= MOST_PIXELS:
        least = model.standardise.least_deviation(images[0].numel())
        return standardise(images.float().contiguous(), dtype, padded=PADDED, least=least)
    padded = F.pad(model.standardise(images.float()), [0, 0, 0, 0, 0, PADDED - images.shape[1]])
    return padded.permute(0, 2, 3, 1).to(dtype).contiguous()


def residual_block(
    layers: Layers, weights: Weights, number: int, raw: Tensor, active: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the activations between its convolutions, its sums, and their activations."""
    shortcut = active if layers.blocks[number].activate_shortcut else raw
    inner = layer(layers, weights, 2 * number + 1, active)[1]
    keeps_raw = number + 1 < len(layers.blocks)
    return inner, *layer(
        layers, weights, 2 * number + 2, inner, shortcut=shortcut, keeps_raw=keeps_raw
    )


def layer(
    layers: Layers, weights: Weights, number: int, source: Tensor, **more: Any
) -> tuple[Tensor, Tensor]:
    """A convolution with all that follows it: the sum before the norm, and the activations."""
    from upright.models.fused.convolution_kernels import convolve

    convolution = layers.convolutions[number]
    return convolve(
        source,
        weights.kernels[number],
        weights.scales[number],
        weights.shifts[number],
        after=convolution.out_channels,
        stride=convolution.stride[0],
        slope=SLOPE,
        **more,
    )
