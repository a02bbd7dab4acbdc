"""An attack as text: what states tell two attacks apart by, and two askers that they ask the same.

That of an attack of a user's own may be a plain object, whose text is its address; it may hold
functions, arrays and networks, which text tells in part or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from upright.attacks import Attack
from upright.factories import digest_of_code
from upright.identity import digest_of

__all__ = ["has_address", "told"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def has_address(text: str) -> bool:
    """Whether a text says where an object lies, which is another place in each process."""
    return _ADDRESS.search(text) is not None


def told(attack: Attack) -> str:
    """All of an attack as text, which is the same in each process, its code among it."""
    text, held = repr(attack), getattr(attack, "__dict__", attack)
    if type(attack).__repr__ is object.__repr__:
        text = f"{type(attack).__qualname__}({held})"
    arrays = {str(place): array for place, array in enumerate(_arrays(held))}
    digests = (digest_of(arrays) if arrays else "", digest_of_code(attack))
    return " ".join(filter(None, (_ADDRESS.sub("", text), *digests)))


def _arrays(held: object) -> Iterator[Tensor | bytes | dict[str, Any]]:
    """All arrays that an object holds, however deep: text leaves out digits and the middle."""
    match held:
        case Tensor():
            yield held
        case nn.Module():
            yield held.state_dict()
        case np.ndarray() if held.dtype.hasobject:
            yield from _arrays(held.tolist())
        case np.ndarray():
            yield held.tobytes()
        case Mapping():
            yield from _arrays([*held.values()])
        case list() | tuple():
            for each in held:
                yield from _arrays(each)
        case _ if is_dataclass(held) and not isinstance(held, type):
            yield from _arrays([getattr(held, field.name) for field in fields(held)])
