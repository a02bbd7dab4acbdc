"""A running average of weights, which may be better than the last ones (Polyak and Juditsky 1992).

Averaged are all parameters, and the buffers that hold numbers, such as the statistics of batch
norms: those of the averaged weights themselves would take a pass over the data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Average", "averaged_weights"]

_PREFIX = "average/"
_WEIGHTS = "model/"


class Average:
    """The average of a network's weights, on their device; moved with nothing that waits for it."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._live = {name: each.detach() for name, each in model.state_dict().items()}
        self.tensors = {name: each.clone() for name, each in self._live.items()}
        self._rate = torch.ones((), device=device)
        moving = [name for name, each in self._live.items() if each.is_floating_point()]
        self._moving = [self.tensors[name] for name in moving]
        self._targets = [self._live[name] for name in moving]
        self._counts = [name for name in self._live if name not in moving]

    def set_rate(self, rate: float) -> None:
        """Say how far the next update moves, from 0 to 1."""
        self._rate.fill_(rate)

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the weights as they are."""
        ways = torch._foreach_sub(self._targets, self._moving)
        torch._foreach_mul_(ways, self._rate)
        torch._foreach_add_(self._moving, ways)
        for name in self._counts:
            self.tensors[name].copy_(self._live[name])

    def state(self) -> dict[str, Tensor]:
        """Give the average under the names that a checkpoint has for it."""
        return {_PREFIX + name: tensor for name, tensor in self.tensors.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up an average that was kept, in place."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[_PREFIX + name])

    @torch.no_grad()
    def apply(self) -> None:
        """Give the network the averaged weights."""
        for name, tensor in self.tensors.items():
            self._live[name].copy_(tensor)


def averaged_weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights of the network that a checkpoint is for: the average, if it has one."""
    averaged = {
        _WEIGHTS + name.removeprefix(_PREFIX): tensor
        for name, tensor in tensors.items()
        if name.startswith(_PREFIX)
    }
    return averaged or tensors
