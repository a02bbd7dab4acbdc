"""Whether somebody looks on while tensors are computed, and so which of them have values."""

from __future__ import annotations

import torch

__all__ = ["have_values", "is_capturing", "is_traced"]


def is_capturing() -> bool:
    """Whether a CUDA graph captures what is computed now: no value can be looked at."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_traced() -> bool:
    """Whether a compiler, an exporter or a transform such as ``vmap`` looks into operations."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return True
    return torch._C._are_functorch_transforms_active()


def have_values() -> bool:
    """Whether tensors do: not where a program is traced, transformed or recorded."""
    return not (is_traced() or is_capturing())
