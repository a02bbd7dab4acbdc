"""A bound on what an `.npz` or a folder of images unpacks to.

A few bytes can stand for any number of others. Photographs are packed to a tenth or a thirtieth,
drawings to a hundredth; beyond that, and beyond what any machine has room for, it is no data set.
"""

from __future__ import annotations

__all__ = ["check_unpacked_size"]

_MOST_BYTES = 1 << 30
_MOST_TIMES = 100


def check_unpacked_size(what: str, *, needed_bytes: int, packed_bytes: int, advice: str) -> None:
    """Refuse what would take more than 1 GiB and more than a hundred times its size on the disk."""
    if needed_bytes > max(_MOST_BYTES, _MOST_TIMES * packed_bytes):
        raise ValueError(
            f"{what} would unpack from {packed_bytes / 2**20:.3g} MiB to"
            f" {needed_bytes / 2**30:.3g} GiB of memory, more than 1 GiB and more than"
            f" {_MOST_TIMES} times; {advice}"
        )
