"""A network's weights as the zoo keeps them: half the size of a checkpoint's, or less.

Kernels and matrices are rounded to bfloat16. Norms, biases and buffers stay as they are: they are
few, and statistics of batch norms may span more digits than bfloat16 has.
"""

from __future__ import annotations

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from upright.train.weights import build_with, model_tensors

__all__ = ["pack", "unpack"]


def pack(network: nn.Module) -> bytes:
    """Give the content of a file of weights: safetensors, in which nothing can be run."""
    rounded = {weight.data_ptr() for weight in network.parameters() if weight.ndim > 1}
    packed = {
        name: tensor.to(torch.bfloat16 if tensor.data_ptr() in rounded else tensor.dtype)
        for name, tensor in model_tensors(network).items()
    }
    return save({name: tensor.cpu().contiguous() for name, tensor in packed.items()})


def unpack(content: bytes, model: str, *, classes: int, channels: int) -> nn.Module:
    """Build the network of that name with packed weights, in float32 and in evaluation mode."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise ValueError(f"not a file of weights: {error}") from error
    return build_with(tensors, model, classes=classes, channels=channels)
