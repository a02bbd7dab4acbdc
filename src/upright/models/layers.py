"""Layers that several networks share."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Standardise", "batch_norm", "blurred_half", "largest", "without_count"]

_Norm = TypeVar("_Norm", bound=nn.BatchNorm2d)


class Standardise(nn.Module):
    """Gives each image mean 0 and standard deviation 1, over all its pixels and channels.

    The deviation is bounded from below by that of a flat image with one grey level of noise in one
    value, so that a flat image does not blow up.
    """

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean((1, 2, 3), keepdim=True)
        deviation = images.std((1, 2, 3), keepdim=True, correction=0)
        return (images - mean) / deviation.clamp_min(self.least_deviation(images[0].numel()))

    @staticmethod
    def least_deviation(values: int) -> float:
        """Give the lower bound of the deviation for an image of so many values."""
        return 1 / (255 * math.sqrt(values))


def batch_norm(channels: int, epsilon: float = 1e-5) -> nn.BatchNorm2d:
    """Make a batch norm that does not count batches."""
    return without_count(nn.BatchNorm2d(channels, eps=epsilon))


def without_count(norm: _Norm) -> _Norm:
    """Let a norm not count batches: nothing reads the count, and on a GPU it costs as much as a
    layer."""
    norm.num_batches_tracked = None
    norm.register_load_state_dict_pre_hook(_without_count)  # type: ignore[no-untyped-call]
    return norm


def _without_count(
    _: nn.Module, state: MutableMapping[str, Any], prefix: str, *_others: object
) -> None:
    """Drop the count from what is loaded: PyTorch adds one to a state that no longer says which
    version wrote it, as those from files of safetensors, and norms elsewhere keep one."""
    state.pop(f"{prefix}num_batches_tracked", None)


def blurred_half(x: Tensor) -> Tensor:
    """Blur features by the weights 1, 2, 1 along both axes, and keep every other place.

    Two means over neighbours, two by two, make the blur. At an edge the mean is over what is there:
    as if the edge went on, so that a flat image stays flat.
    """
    between = F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)
    return F.avg_pool2d(between, 2, stride=2)


def largest(x: Tensor, dim: int) -> Tensor:
    """Give the maximum along an axis; its gradient goes to the place where it was found.

    That of ``amax`` goes to all that are equal to it. A compiler compares them before they are
    rounded to half precision, finds none, and divides by their number (PyTorch issue 186799).
    """
    # Without a gradient there is none to lose, and a CPU finds no places ten times as fast.
    learns = torch.is_grad_enabled() and x.requires_grad
    return x.max(dim).values if learns else x.amax(dim)
