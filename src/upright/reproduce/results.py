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

__all__ = ["CHECKOUT", "SHIPPED", "DamagedRecord", "Results", "make_missing"]

SHIPPED = Path(__file__).parent / "records"
"""The project's own records, in an installed package."""
CHECKOUT = Path(__file__).parents[3]
"""Where the package runs from its source tree, as when it is installed to be edited."""


class DamagedRecord(UserWarning):
    """A line of a file of records was passed over."""


@dataclass(frozen=True)
class Results:
    """A folder with a file of records for each data set."""

    folder: Path
    beside: Path | None = None
    """Another folder that is read, too, and never written to."""

    @staticmethod
    def usual() -> Results:
        """The folder ``results`` here, beside what comes with the package."""
        return Results(Path("results"), _shipped())

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


def make_missing(
    tasks: Sequence[Task],
    engine: Engine,
    results: Results,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Failure, ...]:
    """Let an engine perform what is not recorded yet; each record is kept once, as it comes.

    A record that cannot be kept is told in full, and counts as a failure; the others go on.
    """
    todo = undone(tasks, results.read())
    unkept: list[Failure] = []

    def keep(record: Record) -> None:
        found = ", ".join(f"{name} {100 * value:.2f} %" for name, value in record.measured.items())
        about = f"{record.method} on {record.dataset}, seed {record.seed}: {found}"
        try:
            again = "" if results.add(record) else " (was recorded before)"
        except OSError as error:
            its = [task for task in todo if _is_of(task, record)]
            if not its:
                raise
            say(f"{about} (not recorded)")
            unkept.append(Failure(its[0], str(error)))
        else:
            say(about + again)

    return (*engine.run(todo, keep), *unkept)


def _is_of(task: Task, record: Record) -> bool:
    return task.recipe.hash == record.recipe_hash and task.recipe.seed == record.seed
