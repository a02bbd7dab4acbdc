"""An attack as text: what states tell two attacks apart by, and two askers that they ask the same.

That of an attack of a user's own may be a plain object, whose text is its address; it may hold
functions, arrays and networks, which text tells in part or not at all.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import torch
from torch import Tensor, nn

from upright.attacks import Attack

__all__ = ["has_address", "told"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def has_address(text: str) -> bool:
    """Whether a text says where an object lies, which is another place in each process."""
    return _ADDRESS.search(text) is not None


def told(attack: Attack) -> str:
    """All of an attack as text, which is the same in each process."""
    text, held = repr(attack), getattr(attack, "__dict__", attack)
    if type(attack).__repr__ is object.__repr__:
        text = f"{type(attack).__qualname__}({held})"
    sums = [zlib.crc32(_bytes_of(array)) for array in _arrays(held)]
    return _ADDRESS.sub("", text) + (f" {sums}" if sums else "")


def _arrays(held: object) -> Iterator[Tensor]:
    """All arrays that an object holds, however deep: text leaves out digits and the middle."""
    match held:
        case Tensor():
            yield held
        case np.ndarray():
            yield torch.from_numpy(held)
        case nn.Module():
            yield from _arrays([*held.state_dict().values()])
        case Mapping():
            yield from _arrays([*held.values()])
        case list() | tuple():
            for each in held:
                yield from _arrays(each)
        case _ if is_dataclass(held) and not isinstance(held, type):
            yield from _arrays([getattr(held, field.name) for field in fields(held)])


def _bytes_of(array: Tensor) -> bytes:
    whole = array.detach().cpu().contiguous().flatten()
    return whole.view(torch.uint8).numpy().tobytes()
