"""Seeds of their own for every use of randomness, all derived from one."""

from __future__ import annotations

import hashlib

__all__ = ["seed_for"]


def seed_for(seed: int, use: object, index: int) -> int:
    """Give the seed of one use at one place, such as a step: no use knows of another's draws."""
    digest = hashlib.sha256(f"{seed} {use} {index}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
