"""A folder of records, and the making of those that it lacks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from upright.records import Record, append, read_folder
from upright.reproduce.engine import Engine, Failure
from upright.reproduce.missing import undone
from upright.reproduce.work import Task

__all__ = ["DamagedRecord", "Results", "make_missing"]


class DamagedRecord(UserWarning):
    """A line of a file of records was passed over."""


@dataclass(frozen=True)
class Results:
    """A folder with a file of records for each data set."""

    folder: Path

    def read(self) -> tuple[Record, ...]:
        """All records of all files; a folder that is not there has none."""
        found = read_folder(self.folder)
        for damage in found.damaged:
            warnings.warn(f"passed over {damage}", DamagedRecord, stacklevel=2)
        return found.records

    def add(self, record: Record) -> bool:
        """Keep a record; False where one that answers the same question was there before."""
        name = re.sub(r"[^\w.-]+", "-", record.dataset)
        return append(self.folder / f"{name}.jsonl", record, once=True)


def make_missing(
    tasks: Sequence[Task],
    engine: Engine,
    results: Results,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Failure, ...]:
    """Let an engine perform what is not recorded yet; each record is kept once, as it comes."""

    def keep(record: Record) -> None:
        found = ", ".join(f"{name} {100 * value:.2f} %" for name, value in record.measured.items())
        again = "" if results.add(record) else " (was recorded before)"
        say(f"{record.method} on {record.dataset}, seed {record.seed}: {found}{again}")

    return engine.run(undone(tasks, results.read()), keep)
