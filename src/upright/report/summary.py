"""How much of the paper was measured again, and how it came out: counts over tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from upright.report.model import Cell, Table, Verdict

__all__ = [
    "Tally",
    "repeats_to_markdown",
    "summarise",
    "summary_to_markdown",
    "summary_to_terminal",
]

_WORDS = {
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


def repeats_to_markdown(tables: Iterable[Table]) -> str:
    """Say how many different numbers were measured, of those that tables repeat, and how they came
    out; one that agrees with one table alone is told apart."""
    found: dict[tuple[str, str, str], set[Verdict]] = {}
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                if cell is not None and cell.verdict != "missing":
                    number = (row.dataset, column.name, row.metric)
                    found.setdefault(number, set()).add(cell.verdict)
    verdicts = [its.pop() if len(its) == 1 else "mixed" for its in found.values()]
    counted = ", ".join(f"{verdicts.count(kind)} {words}" for kind, words in _WORDS.items())
    mixed = verdicts.count("mixed")
    rest = f"; {mixed} agree with one table and not with another" if mixed else ""
    return f"Of {len(verdicts)} different numbers, which tables repeat, {counted}{rest}.\n"


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
