"""Copies to a GPU for which nobody waits."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pinned", "sent"]

_IN_TURN = ("cuda",)
"""Devices that take a copy in the order of their work. Plain memory may be used again at once: it
is set aside first; and torch keeps memory that ``pinned`` makes until it was read. On other devices
memory may still be read."""


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to a device; from the host to a GPU without a wait for what that is still to do."""
    return tensor.to(device, non_blocking=tensor.is_cpu and device.type in _IN_TURN)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Put where a GPU can read by itself, if it is to go to one; large copies wait else."""
    return tensor.pin_memory() if tensor.is_cpu and device.type == "cuda" else tensor
