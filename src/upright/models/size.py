"""How large a network is: its parameters, and the arithmetic of a forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from upright.models.registry import build_network

__all__ = ["NetworkSize", "network_size"]


@dataclass(frozen=True)
class NetworkSize:
    """Of one network, on one image."""

    parameters: int
    operations: int
    """Of a forward pass in evaluation; a multiplication and a sum are two."""


@cache
def network_size(name: str, *, classes: int, shape: tuple[int, int, int]) -> NetworkSize:
    """Count those of a network by its name, for images of channels x height x width.

    Tensors are made without content: the largest network takes no memory, and no pass is computed.

    >>> network_size("resnet32", classes=10, shape=(3, 32, 32))
    NetworkSize(parameters=464154, operations=137725184)
    """
    # Here, since no command should wait for it that counts nothing.
    from torch.utils.flop_counter import FlopCounterMode

    with FakeTensorMode(), torch.no_grad():
        network = build_network(name, classes=classes, channels=shape[0]).eval()
        with FlopCounterMode(display=False) as counter:
            network(torch.zeros(1, *shape))
    parameters = sum(each.numel() for each in network.parameters())
    return NetworkSize(parameters, int(counter.get_total_flops()))
