"""Arrays of numbers from a MATLAB 5 file, compressed or not.

The published files of SVHN need no more of the format, and a reader of all of it, in C, does not
survive every file that is not what it seems. Cells, structures and text are passed over.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_mat"]

_HEADER_BYTES = 128
_MOST_BYTES = 1 << 29  # of all that unpacks; the largest array of SVHN has less than half of it
_MATRIX, _COMPRESSED = 14, 15
_STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
"""How values lie in the file, which may be in fewer bytes than their class has."""
_CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}


def read_mat(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of numbers by name."""
    content = memoryview(path.read_bytes())
    orders = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    order = orders.get(bytes(content[_HEADER_BYTES - 4 : _HEADER_BYTES]))
    if order is None:
        raise ValueError("it has no header of version 5")
    found: dict[str, NDArray[Any]] = {}
    room = _MOST_BYTES
    for kind, data in _elements(content[_HEADER_BYTES:], order):
        if kind == _COMPRESSED:
            inflated = _inflated(data, room)
            room -= len(inflated)
            kind, data = next(_elements(inflated, order), (0, data))
        if kind == _MATRIX:
            found |= _matrix(data, order)
        if sum(array.nbytes for array in found.values()) > _MOST_BYTES:
            raise ValueError(f"its arrays have more than {_MOST_BYTES} bytes")
    return found


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Kind and bytes of one element after the other."""
    place = 0
    while place + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        start, after = place + 8, place + 8 + size
        if kind >> 16:  # at most four bytes lie in the place of their number
            kind, size = kind & 0xFFFF, kind >> 16
            start, after = place + 4, place + 8
        if size > len(content) - start or start + size > after:
            raise ValueError("an element ends after its file")
        yield kind, content[start : start + size]
        place = after if kind == _COMPRESSED else after + -after % 8


def _inflated(data: memoryview, most: int) -> memoryview:
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, most + 1)  # 0 would be any number
    if not inflater.eof or len(content) > most:
        raise ValueError(f"an element is cut off, or all have more than {_MOST_BYTES} bytes")
    return memoryview(content)


def _matrix(data: memoryview, order: str) -> dict[str, NDArray[Any]]:
    """An array by its name; nothing for what is no array of numbers."""
    parts = list(islice(_elements(data, order), 4))
    if len(parts) < 4 or len(parts[0][1]) < 4:
        return {}
    (_, flags), (_, sizes), (_, name), (stored, values) = parts
    kind = struct.unpack_from(f"{order}I", flags)[0] & 0xFF
    if kind not in _CLASSES or stored not in _STORED:
        return {}
    shape = np.frombuffer(sizes, f"{order}i4").tolist()
    array = np.frombuffer(values, order + _STORED[stored])
    if min(shape, default=0) < 0 or math.prod(shape) != array.size:
        raise ValueError(f"an array of shape {shape} has {array.size} values")
    if array.size * np.dtype(_CLASSES[kind]).itemsize > _MOST_BYTES:
        raise ValueError(f"an array of shape {shape} has more than {_MOST_BYTES} bytes")
    plain = array.astype(_CLASSES[kind], copy=False).reshape(shape, order="F")
    return {bytes(name).decode("latin1"): plain}
