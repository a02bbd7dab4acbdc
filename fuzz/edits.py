"""Edits of right input, drawn at random: bits, cuts, pieces of other input, numbers at the edge."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

__all__ = ["edited"]

_NUMBERS = (b"-1", b"0", b"1e999", b"NaN", b"-0.0", b"4294967296", b"9" * 19, b"9" * 400)
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)


def edited(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Edit one of the seeds, most often the first, which is right, by one to four edits."""
    seed = seeds[0] if rng.random() < 0.5 else rng.choice(seeds)
    data = seed
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(_EDITS)(data, seeds, rng)
    return data if data != seed else seed + rng.randbytes(1)


def _flip(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _drop(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 16) :]


def _repeat(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randint(1, 64)]
    return data[:start] + piece * rng.choice((2, 3, 100)) + data[start:]


def _noise(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.randint(1, 8)) + data[start + rng.randrange(9) :]


def _splice(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """The beginning of one and the end of another."""
    other = rng.choice(seeds)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _extreme(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    """A field of one to eight bytes, of either order."""
    size, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
    value = rng.choice(_EXTREMES) % (1 << 8 * size)
    start = rng.randrange(len(data) + 1)
    field = value.to_bytes(size, "little" if order == "little" else "big")
    return data[:start] + field + data[start + size :]


def _number(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A number in a text, replaced by one that is huge, or none."""
    numbers = list(re.finditer(rb"-?\d+", data[:100_000]))
    if not numbers:
        return _extreme(data, seeds, rng)
    found = rng.choice(numbers)
    return data[: found.start()] + rng.choice(_NUMBERS) + data[found.end() :]


_EDITS = (_flip, _flip, _cut, _drop, _repeat, _noise, _splice, _extreme, _number)
