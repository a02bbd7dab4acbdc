"""An unpickler for files from outside: arrays of numbers and plain containers, nothing else.

A pickle is a program. The official CIFAR files are pickles of Python 2 that need four names, so
these four stand for functions of this file, and every other name is refused before anything is
called. Programs that would take all memory, all time or all of the stack are refused unrun.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_pickle"]

_MOST_MEMOS = 1_000_000
_MOST_TUPLES = 1_000
"""More, one in the other, would overflow the stack when they are hashed."""
_MOST_REPEATS = 16
"""Of tuples: each repeat may double what a hash has to visit."""
_CODE = re.compile("[|<>=]?[biufc][1248]")


def _latin1(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in the old protocols, without the reach of `codecs.encode`."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


class _Dtype:
    """Stands for a dtype, of which only the code of a plain number is believed."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code
        if not isinstance(self.code, str) or not _CODE.fullmatch(self.code):
            raise pickle.UnpicklingError(f"it asks for an array of {code!r}")

    def __setstate__(self, state: tuple[object, ...]) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        self.code = f"{order}{str(self.code).lstrip('|<>=')}"


class _Array:
    """Stands for an array until its bytes are known: numpy's own reading of a state is not safe."""

    def __init__(self, *_: object) -> None:
        self.array: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, dtype, by_columns, content = state
        if isinstance(content, str):  # bytes of Python 2
            content = content.encode("latin1")
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it holds an array of something else than numbers")
        order: Any = "F" if by_columns else "C"
        values = np.frombuffer(content, dtype=str(dtype.code))
        self.array = values.reshape(shape, order=order).copy()  # type: ignore[call-overload]


class _ArrayType:
    """Stands for the name `numpy.ndarray`, which is only handed on."""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not data")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> object:
    """What a pickle of arrays and plain containers holds; text of Python 2 is read as Latin-1."""
    content = path.read_bytes()
    try:
        _refuse_bombs(content)
        found = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
        return _with_arrays(found)
    # A damaged pickle can make the unpickler raise nearly anything.
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path.name} cannot be read as a pickle of arrays: {text}") from error


def _refuse_bombs(content: bytes) -> None:
    """Look through a program before it is run."""
    tuples, repeats, memos, before = 0, 0, 0, ""
    kept: set[int] = set()
    for operation, argument, _ in pickletools.genops(content):
        name = operation.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            index = memos if name == "MEMOIZE" else int(str(argument))
            memos += 1
            if index > _MOST_MEMOS:
                raise pickle.UnpicklingError(f"it asks for a memo of {index} entries")
            if "TUPLE" in before:
                kept.add(index)
        tuples += "TUPLE" in name
        repeats += name == "DUP" or (name.endswith("GET") and int(str(argument)) in kept)
        if tuples > _MOST_TUPLES or repeats > _MOST_REPEATS or name in ("FROZENSET", "EMPTY_SET"):
            raise pickle.UnpicklingError("it is nested as data never are")
        before = name


def _with_arrays(found: object) -> object:
    if not isinstance(found, dict):
        return found.array if isinstance(found, _Array) else found
    return {key: each.array if isinstance(each, _Array) else each for key, each in found.items()}
