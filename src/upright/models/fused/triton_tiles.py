"""How Triton's kernels cut their work, measured by ``benchmarks/gpu_tiles.py`` on an NVIDIA H200.

A table and not a search at run time: a search would compile every kernel several times, at each
start, and give another program each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Kernel", "Tile", "tile_for"]

Kernel = Literal["forward", "inputs", "weights"]


@dataclass(frozen=True)
class Tile:
    """How a kernel cuts its work."""

    block: int
    """Pixels that one program takes at once."""
    across: Literal[1, 4]
    """1: a matrix product for each tap; 4: one for the three taps of a row, with a fourth of
    zeros to make a power of two."""
    warps: int = 4
    stages: int = 3
    """Loads in flight."""
    splits: int = 1
    """Programs that share the pixels, for the gradient of weights."""


def tile_for(kernel: Kernel, *, before: int, after: int, images: int) -> Tile:
    """Choose a tile for a layer of so many channels; a small batch needs smaller tiles."""
    small = images <= 256
    if kernel == "weights":
        if before * after <= 16 * 16:
            return Tile(64, 4, splits=128)
        return (
            Tile(64, 1, splits=64) if before <= 32 and after <= 32 else Tile(128, 1, 8, splits=32)
        )
    if small and before * after > 32 * 32:
        return Tile(64, 1)
    return Tile(128, 1)
