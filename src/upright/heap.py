"""Memory that is freed stays with the process, for the next batch, which needs as much of it.

glibc hands large blocks back to the kernel as soon as they are free, and the kernel clears every
page that is asked for again. A network frees and asks with each layer: on a CPU that is a good part
of an evaluation (``benchmarks/heap.py``). The program keeps its memory; a library must not decide
that for its user's process, who calls :func:`keep_freed` or sets glibc's variables.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["keep_freed"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h

_KEPT = 1 << 30
"""So much may lie free at the heap's end before some is handed back."""

_LARGEST = (1 << 28, 1 << 25)
"""Larger blocks are the kernel's, as before; older releases of glibc take no more than 32 MiB."""

_RULES = ("mmap_max", "mmap_threshold", "top_pad", "trim_threshold")
"""Of glibc: who sets one of them has said what is kept."""


def keep_freed() -> None:
    """Keep what this process frees, from now on: up to a gigabyte at the heap's end.

    What lies free below a block that is in use stays as well, however much it is. Nothing changes
    without glibc, and where the user's environment has a rule for its heap.
    """
    set_option = _mallopt()
    if set_option is None or _has_rule():
        return
    if any(set_option(_MMAP_THRESHOLD, size) for size in _LARGEST):
        set_option(_TRIM_THRESHOLD, _KEPT)


def _mallopt() -> ctypes._NamedFuncPointer | None:
    """The function of the C library that this process runs on; others than glibc have none."""
    return getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None


def _has_rule() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return any(
        f"MALLOC_{rule.upper()}_" in os.environ or f"glibc.malloc.{rule}=" in tunables
        for rule in _RULES
    )
