"""Layers of TensorFlow in torch, filled with weights.

Where "same" asks for an odd number of pixels around an image, TensorFlow has the odd one on the
right and below.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["Array", "convolution", "linear", "norm"]

Array = NDArray[np.float32]


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow's "same" does."""

    def forward(self, images: Tensor) -> Tensor:
        missing = [
            max((math.ceil(side / step) - 1) * step + size - side, 0)
            for side, size, step in zip(
                images.shape[-2:], self.kernel_size, self.stride, strict=True
            )
        ]
        top, left = (each // 2 for each in missing)
        return super().forward(F.pad(images, [left, missing[1] - left, top, missing[0] - top]))


def convolution(
    kernel: Array, bias: Array, *, stride: int = 1, same: bool = True, groups: int = 1
) -> nn.Conv2d:
    """Make a convolution; its kernel is out x in x height x width, as torch has it."""
    out, within, *size = kernel.shape
    made = SameConv2d if same else nn.Conv2d
    layer = made(within * groups, out, (size[0], size[1]), stride, groups=groups)
    return _filled(layer, weight=kernel, bias=bias)


def norm(scale: Array, shift: Array, mean: Array, variance: Array, *, eps: float) -> nn.BatchNorm2d:
    """Make a batch normalisation that is done with learning."""
    layer = nn.BatchNorm2d(len(scale), eps=eps)
    return _filled(layer, weight=scale, bias=shift, running_mean=mean, running_var=variance)


def linear(kernel: Array, bias: Array) -> nn.Linear:
    """Make a linear layer; its kernel is out x in."""
    return _filled(nn.Linear(kernel.shape[1], kernel.shape[0]), weight=kernel, bias=bias)


_Layer = TypeVar("_Layer", bound=nn.Module)


def _filled(layer: _Layer, **values: Array) -> _Layer:
    state = {name: torch.from_numpy(value.copy()) for name, value in values.items()}
    layer.load_state_dict(layer.state_dict() | state)
    return layer
