"""An unpickler for files from outside: numpy arrays and plain containers, nothing else.

A pickle is a program. The official CIFAR files are pickles of Python 2 that need four names, so
these four are allowed and every other name is refused before anything is called.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["read_pickle"]


def _latin1(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in the old protocols, without the reach of `codecs.encode`."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


# numpy moved this function between versions 1 and 2; an array's own reduction always names it.
_RECONSTRUCT: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not data")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> object:
    """What a pickle of arrays and plain containers holds; text of Python 2 is read as Latin-1."""
    try:
        with path.open("rb") as stream:
            return _ArraysOnly(stream, encoding="latin1").load()
    except OSError:
        raise
    # A damaged pickle can make the unpickler raise nearly anything.
    except Exception as error:
        raise ValueError(f"{path.name} cannot be read as a pickle of arrays: {error}") from error
