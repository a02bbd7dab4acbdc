"""What each use of a stored split looks at: cheap to see again, and unlikely to be kept by damage.

The sizes and times of its files say that nobody wrote to them since they were checked whole, and
some of its rows, read again, that they are what the disk gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from upright.data.raw import RawSplit, array_names
from upright.data.registry import Split

__all__ = ["Note", "take_note"]

_ROWS = 64


@dataclass(frozen=True)
class Note:
    """Taken of files when their whole content was checked.

    Attributes:
        files: By array, the size in bytes and the time of the last change in ns.
        sample: SHA-256 of 64 images, spread evenly, and their labels.
    """

    files: Mapping[str, tuple[int, int]]
    sample: str

    @classmethod
    def from_json(cls, content: Any) -> Note:
        """Read what ``to_json`` gave; what is no note is a ``LookupError`` or a ``TypeError``."""
        files = {str(name): (each[0], each[1]) for name, each in content["files"].items()}
        return cls(files, content["sample"])

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return {"files": dict(self.files), "sample": self.sample}


def take_note(folder: Path, split: Split, raw: RawSplit) -> Note:
    """Note the sizes and times of a split's files, and a sample of what they hold."""
    found = {name: (folder / f"{name}.npy").stat() for name in array_names(split)}
    files = {name: (each.st_size, each.st_mtime_ns) for name, each in found.items()}
    return Note(files, _sample(raw))


def _sample(raw: RawSplit) -> str:
    rows = np.linspace(0, len(raw.labels) - 1, _ROWS).astype(np.int64)
    digest = hashlib.sha256(raw.images[rows].tobytes())
    digest.update(raw.labels[rows].astype(np.int64).tobytes())
    return digest.hexdigest()
