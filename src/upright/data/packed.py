"""Arrays out of an `.npz` file that nobody vouches for.

What an array takes is known from its headers before anything is unpacked: that of the archive,
which says how it is packed and its size, and its own, which says its kind and shape. Only as many
rows as are wanted are unpacked.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from upright.data.unpacked_size import check_unpacked_size

__all__ = ["PackedArray", "check_packing"]

_SUFFIX = ".npy"
_NUMPYS_OWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class PackedArray:
    """One array of an `.npz` file that is open: what its headers say of it."""

    file: zipfile.ZipFile
    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]

    @classmethod
    def find(cls, file: zipfile.ZipFile, name: str) -> PackedArray:
        """Read the headers, and refuse those that lie."""
        info = _member(file, name)
        with file.open(info) as stream:
            shape, by_columns, dtype = _read_header(stream)
        if dtype.kind not in "biufc" or min(shape, default=0) < 0:
            raise ValueError(f"it is of {dtype} and shape {shape}")
        if math.prod(shape) * dtype.itemsize > info.file_size:
            raise ValueError(f"its {info.file_size} bytes are too few for shape {shape}")
        return cls(file, info, shape, by_columns, dtype)

    def read(self, rows: int | None = None) -> NDArray[Any]:
        """Unpack the array, or its first rows alone."""
        shape = self.shape
        if rows is not None and shape and not self.by_columns:
            shape = (min(rows, shape[0]), *shape[1:])
        with self.file.open(self.info) as stream:
            _read_header(stream)
            flat = _read_exactly(stream, math.prod(shape) * self.dtype.itemsize).view(self.dtype)
        if self.by_columns:
            return flat.reshape(shape[::-1]).transpose()[:rows]
        return flat.reshape(shape)


def _member(file: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """Look an array up by its name, which the archive has with or without an ending."""
    ended = f"{name}{_SUFFIX}"
    return file.getinfo(ended if ended in file.NameToInfo else name)


def check_packing(path: Path, file: zipfile.ZipFile, name: str) -> None:
    """Refuse what is packed otherwise than numpy packs, which no bound holds, or too tightly."""
    info = _member(file, name)
    if info.compress_type not in _NUMPYS_OWN:
        raise ValueError(
            f"{path}: {name} is compressed in a way that numpy does not write; write it again with"
            " numpy.savez_compressed"
        )
    check_unpacked_size(
        f"{path}: {name}",
        needed_bytes=info.file_size,
        packed_bytes=info.compress_size,
        advice="if it is what you want, save it with numpy.savez, which packs nothing",
    )


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)
    if version not in _READERS:
        raise ValueError(f"it is of version {version}")
    shape, by_columns, dtype = _READERS[version](stream)
    return shape, by_columns, dtype


def _read_exactly(stream: IO[bytes], count: int) -> NDArray[np.uint8]:
    found = np.empty(count, np.uint8)
    place = 0
    while place < count:
        piece = stream.read(min(_BYTES_AT_ONCE, count - place))
        if not piece:
            raise EOFError(f"it ends after {place} of {count} bytes")
        found[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
        place += len(piece)
    return found
