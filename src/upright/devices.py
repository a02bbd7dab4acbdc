"""Copies to a GPU for which nobody waits."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pinned", "sent"]

_IN_TURN = ("cuda",)
"""Devices that take a copy in the order of their work, from memory that may be used again at once.
On others it may still be read."""


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to a device; from the host to a GPU without a wait for what that is still to do."""
    return tensor.to(device, non_blocking=tensor.is_cpu and device.type in _IN_TURN)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to where a GPU can read by itself, if it is to go to one; large copies wait else."""
    return tensor.pin_memory() if tensor.is_cpu and device.type == "cuda" else tensor
