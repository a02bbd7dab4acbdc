"""How the weights of convolutions lie in memory.

Most processors read images channels last: tensor cores of GPUs, and the kernels of CPUs too. What
goes through a network then lies so from layer to layer, with the same numbers in it.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["laid_as_usual", "lay_as_usual", "lay_channels_last"]


def laid_as_usual(model: nn.Module) -> list[nn.Conv2d]:
    """Give the convolutions whose weights lie row by row, as torch makes them.

    Those of torch's own class alone: others may look at their weights in ways of their own.
    """
    found = [each for each in model.modules() if type(each) is nn.Conv2d]
    return [each for each in found if each.weight.is_contiguous()]


def lay_channels_last(model: nn.Module) -> None:
    """Let the weights of a model's convolutions lie channels last."""
    for each in laid_as_usual(model):
        each.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def lay_as_usual(convolutions: list[nn.Conv2d]) -> None:
    """Let weights lie row by row again."""
    for each in convolutions:
        each.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
