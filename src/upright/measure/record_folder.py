"""A folder of records."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from upright.record_files import append, read_folder
from upright.records import Record

__all__ = ["CHECKOUT", "SHIPPED", "DamagedRecord", "RecordFolder"]

SHIPPED = Path(__file__).parent / "records"
"""The project's own records, in an installed package."""
CHECKOUT = Path(__file__).parents[3]
"""Where the package runs from its source tree, as when it is installed to be edited."""


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

    def read(self) -> tuple[Record, ...]:
        """All records of all files; a folder that is not there has none.

        What lies in both folders, as where the package is its own checkout, is given once.
        """
        own, others = _read(self.folder), () if self.beside is None else _read(self.beside)
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


def _read(folder: Path) -> tuple[Record, ...]:
    found = read_folder(folder)
    for damage in found.damaged:
        warnings.warn(f"passed over {damage}", DamagedRecord, stacklevel=3)
    return found.records
