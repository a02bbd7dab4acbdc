"""A network's weights and buffers, among the tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from upright.models import build_network

__all__ = ["build_with", "load_weights", "model_tensors"]

_PREFIX = "model/"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Give weights and buffers under the names that a checkpoint has for them."""
    return {_PREFIX + name: tensor for name, tensor in model.state_dict().items()}


def load_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy weights and buffers into a network, in place.

    By hand, since ``load_state_dict`` asks for a count of batches that our norms do not keep.
    """
    own = model_tensors(model)
    given = {name for name in tensors if name.startswith(_PREFIX)}
    if differing := sorted(own.keys() ^ given):
        few = ", ".join(map(repr, differing[:4]))
        raise ValueError(f"the weights are those of another network: {few}")
    if other := [name for name, tensor in own.items() if tensor.shape != tensors[name].shape]:
        raise ValueError(f"the weights are of other sizes: {', '.join(other[:4])}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def build_with(
    tensors: dict[str, Tensor],
    name: str,
    *,
    classes: int,
    channels: int,
    build: Callable[..., nn.Module] = build_network,
) -> nn.Module:
    """Build a network with these weights, in evaluation mode.

    By its name among those of this package, unless told how to build: who reads files of strangers
    must not run code that they name.
    """
    # Or a few bytes beside the weights could ask for a network that fills all memory.
    if all(classes not in tensor.shape for tensor in tensors.values()):
        raise ValueError(f"no weights are for its {classes} classes")
    model = build(name, classes=classes, channels=channels)
    load_weights(model, tensors)
    return model.eval()
