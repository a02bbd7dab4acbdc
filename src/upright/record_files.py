"""Files and folders of records. A file only grows: a line for each recipe, seed and evaluation.

Any number of processes may append to a file at once, and a line that was damaged costs no other
line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NoReturn

from upright.callers import warn_caller
from upright.files import lock
from upright.records import Record, from_json, to_json

__all__ = [
    "CHECKOUT",
    "SHIPPED",
    "Damage",
    "DamagedRecord",
    "RecordFolder",
    "Records",
    "append",
    "read",
    "read_folder",
]

SHIPPED = Path(__file__).parent / "shipped_records"
"""The project's own records, in an installed package."""
CHECKOUT = Path(__file__).parents[2]
"""Where the package runs from its source tree, as when it is installed to be edited."""


@dataclass(frozen=True)
class Damage:
    """A line that is not a record; as text, what to tell a person about it."""

    path: Path
    line_number: int
    """Counted from 1."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line_number}: no record ({self.reason})"


@dataclass(frozen=True)
class Records:
    """The content of files of records, in the order of the lines."""

    records: tuple[Record, ...]
    damaged: tuple[Damage, ...]


def append(
    path: Path | str,
    record: Record,
    *,
    once: bool = False,
    by: Callable[[Record], object] = attrgetter("key"),
) -> bool:
    """Add a record to a file, made where it is missing; on return it is on the disk.

    With ``once``, nothing is added where the file has one that is the same ``by`` its key, or by
    what else tells records apart; the answer says whether one was added.
    """
    line = json.dumps(to_json(record), allow_nan=False).encode() + b"\n"
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_APPEND and a single write keep lines whole even where the lock does not reach.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    try:
        locked = lock(handle)
        known = _parse_all(path, path.read_bytes()).records if once else ()
        if any(by(each) == by(record) for each in known):
            return False
        size = os.lseek(handle, 0, os.SEEK_END)
        content = line if _ends_a_line(handle, size) else b"\n" + line
        try:
            _write(handle, content, path)
        except OSError:
            if locked:  # else another writer's line may stand behind ours by now
                os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)  # which unlocks it, too
    return True


def _write(handle: int, content: bytes, path: Path) -> None:
    """Write and sync; a disk that is nearly full may take a part, or refuse at the sync only."""
    if os.write(handle, content) < len(content):
        raise OSError(f"{path}: no room for another record, which needs {len(content)} bytes")
    os.fsync(handle)


def read(path: Path | str) -> Records:
    """Read all records of a file; lines that are damaged are named and passed over."""
    path = Path(path)
    with path.open("rb") as file:
        lock(file.fileno(), shared=True)
        return _parse_all(path, file.read())


def read_folder(folder: Path) -> Records:
    """Read all files of records (``*.jsonl``), by name; a folder that is not there has none."""
    parts = [read(path) for path in sorted(folder.glob("*.jsonl"))]
    return Records(
        tuple(record for part in parts for record in part.records),
        tuple(damage for part in parts for damage in part.damaged),
    )


def _parse_all(path: Path, content: bytes) -> Records:
    lines = content.removesuffix(b"\n").split(b"\n")
    records, damaged = [], []
    for number, line in enumerate(lines if lines != [b""] else [], start=1):
        try:
            records.append(_parse(line))
        except (ValueError, RecursionError) as error:
            damaged.append(Damage(path, number, str(error)))
    return Records(tuple(records), tuple(damaged))


def _ends_a_line(handle: int, size: int) -> bool:
    """Whether a file ends with a newline; it does not where a writer died in the middle of one."""
    if size == 0:
        return True
    os.lseek(handle, size - 1, os.SEEK_SET)
    return os.read(handle, 1) == b"\n"


def _parse(line: bytes) -> Record:
    return from_json(json.loads(line.decode(), parse_constant=_refuse))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number of JSON")


class DamagedRecord(UserWarning):
    """A line of a file of records was passed over."""


@dataclass(frozen=True)
class RecordFolder:
    """A folder with a file of records for each data set."""

    folder: Path
    beside: Path | None = None
    """Another folder that is read, too, and never written to."""

    @staticmethod
    def usual() -> RecordFolder:
        """The folder ``results`` here, beside what comes with the package."""
        return RecordFolder(Path("results"), _shipped())

    @property
    def held_out(self) -> RecordFolder:
        """What was measured on held-out training images, to choose by: reading this leaves it."""
        beside = None if self.beside is None else self.beside / "held-out"
        return RecordFolder(self.folder / "held-out", beside)

    def read(self) -> tuple[Record, ...]:
        """All records of all files; a folder that is not there has none.

        What lies in both folders, as where the package is its own checkout, is given once.
        """
        own, others = (
            _read_or_warn(self.folder),
            () if self.beside is None else _read_or_warn(self.beside),
        )
        known = {(record.key, record.finished) for record in own}
        return (*own, *(each for each in others if (each.key, each.finished) not in known))

    def add(self, record: Record) -> bool:
        """Keep a record; False where one that answers the same question was there before."""
        name = re.sub(r"[^\w.-]+", "-", record.dataset)
        return append(self.folder / f"{name}.jsonl", record, once=True)


def _shipped() -> Path:
    """Where the project's own records lie: a wheel has a copy of the checkout's ``results``."""
    is_source = not SHIPPED.exists() and (CHECKOUT / "pyproject.toml").is_file()
    return CHECKOUT / "results" if is_source else SHIPPED


def _read_or_warn(folder: Path) -> tuple[Record, ...]:
    found = read_folder(folder)
    for damage in found.damaged:
        warn_caller(f"passed over {damage}", DamagedRecord)
    return found.records
