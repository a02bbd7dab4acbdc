"""How much of the paper was measured again, and how it came out: counts over tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from upright.report.model import Cell, Source, Table, Verdict

__all__ = [
    "Tally",
    "different_numbers_to_markdown",
    "summarise",
    "summary_to_markdown",
    "summary_to_terminal",
]

_WORDS: dict[Verdict, str] = {
    "agrees": "agree",
    "above": "are above",
    "short": "short",
    "unjudged": "not compared",
}
_HEADINGS = ("table", "cells", "measured", "agrees", "above", "short", "not compared", "missing")


@dataclass(frozen=True)
class Tally:
    """Cells of a table, counted by verdict; but for ``missing``, they make up ``measured``."""

    name: str
    cells: int
    measured: int
    agrees: int
    above: int
    short: int
    unjudged: int
    missing: int


def summarise(tables: Iterable[Table]) -> tuple[Tally, ...]:
    """Count the cells of each table, the parts of one together; the last line is for all."""
    cells: dict[str, list[Cell]] = {}
    for table in tables:
        cells.setdefault(table.name, []).extend(table.cells)
    every = [cell for some in cells.values() for cell in some]
    return (*(_tally(name, some) for name, some in cells.items()), _tally("all", every))


def summary_to_terminal(tallies: Sequence[Tally]) -> RichTable:
    """The counts as a table for ``rich``."""
    caption = Text(
        "agrees: no further from the paper, either way, than chance alone is in 95 of 100", "dim"
    )
    shown = RichTable(
        box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", collapse_padding=True
    )
    shown.add_column(_HEADINGS[0], no_wrap=True)
    for heading in _HEADINGS[1:]:
        shown.add_column(heading, justify="right")
    for tally in tallies:
        shown.add_row(*map(str, astuple(tally)), style="bold" if tally is tallies[-1] else "")
    return shown


def summary_to_markdown(tallies: Sequence[Tally]) -> str:
    """The counts as a table in Markdown."""
    rows = [_HEADINGS, ("---", *("---:" for _ in _HEADINGS[1:])), *map(astuple, tallies)]
    return "".join(f"| {' | '.join(str(part) for part in row)} |\n" for row in rows)


def different_numbers_to_markdown(tables: Iterable[Table]) -> str:
    """Count what was measured once for each number, whatever tables repeat it and by which names.

    One that is a misprint in one table counts as it does in the others.
    """
    found: dict[tuple[str, str, tuple[Source, ...]], set[Verdict]] = {}
    for table in tables:
        for row in table.rows:
            for cell in row.cells:
                if cell is not None and cell.measured is not None:
                    number = (row.dataset, row.metric, cell.measured.sources)
                    found.setdefault(number, set()).add(cell.verdict)
    verdicts = [_of_all_tables(its) for its in found.values()]
    counted = ", ".join(f"{verdicts.count(kind)} {words}" for kind, words in _WORDS.items())
    differ = verdicts.count(None)
    rest = f"; {differ} by the table that they are compared with" if differ else ""
    return f"Of {len(verdicts)} different numbers, which tables repeat, {counted}{rest}.\n"


def _of_all_tables(verdicts: set[Verdict]) -> Verdict | None:
    """What all tables say of a number that has one to compare with; None where they differ."""
    compared = verdicts - {"unjudged"} or verdicts
    return next(iter(compared)) if len(compared) == 1 else None


def _tally(name: str, cells: Sequence[Cell]) -> Tally:
    verdicts = [cell.verdict for cell in cells]
    missing = verdicts.count("missing")
    return Tally(
        name=name,
        cells=len(cells),
        measured=len(cells) - missing,
        agrees=verdicts.count("agrees"),
        above=verdicts.count("above"),
        short=verdicts.count("short"),
        unjudged=verdicts.count("unjudged"),
        missing=missing,
    )
