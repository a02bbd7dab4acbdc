"""Whether Triton's kernels can run here: the one place that asks."""

from __future__ import annotations

__all__ = ["has_triton"]


def has_triton() -> bool:
    """Whether Triton can compile kernels here: it is installed, and knows the GPU."""
    from torch.utils._triton import has_triton as found

    return found()
