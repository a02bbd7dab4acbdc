"""What a paper reports: every accuracy of its tables, and which one to compare with.

Several tables may have the same cell, and not all of them agree. Then these rules hold, in this
order:

- A row that the paper printed by mistake is never the answer (``Paper.misprints``).
- A number with its standard error comes before one without: the appendix before the main text.
- Of those, the first in the paper wins: the tables that compare methods before those that look
  at one aspect, such as finer grids or more tries.

So, in "Invariance-inducing regularization", AT(rob, Wo-10) at grid-775 is that of ``compareadv1``,
not of ``finer_grid``; L2(nat, Wo-10) on CIFAR-10 is the 75.46 of the appendix, not the 75.64 of
``comparereg``; and KL(nat, rnd) there is 89.33 and 73.50, not 89.34 or, as Wo-1, 73.40.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache

from upright.paper.paper import Method, Paper
from upright.paper.slips import read_numbers
from upright.records import Reported

__all__ = [
    "PrintedNumber",
    "all_reported",
    "misprint_of",
    "paper_rows",
    "printed",
    "reported",
]

_Cell = tuple[str, Method | None, str]
"""A data set, a method and a metric."""


@dataclass(frozen=True, kw_only=True)
class PrintedNumber:
    """A number of a paper, with data set, method and metric as the paper spells them."""

    dataset: str
    method: str
    metric: str
    value: Reported
    misprint: str
    """What is wrong with the number; empty where nothing is."""


@cache
def paper_rows(paper: Paper) -> tuple[PrintedNumber, ...]:
    """All numbers, in the order of the paper, misprints included."""
    return tuple(_row(paper, line) for line in read_numbers(paper))


def reported(paper: Paper, dataset: str, method: str, metric: str) -> Reported | None:
    """What the paper reports, or None where it reports nothing; any spelling will do."""
    found = all_reported(paper, dataset, method, metric)
    return found[0] if found else None


def all_reported(paper: Paper, dataset: str, method: str, metric: str) -> tuple[Reported, ...]:
    """Every table's number for the same cell, the one to compare with first; no misprints."""
    return _cells(paper).get(_cell(paper, dataset, method, metric), ())


@cache
def printed(paper: Paper, table: str, dataset: str, method: str, metric: str) -> Reported | None:
    """The number that a table prints, None for a dash; names as in a ``Layout``.

    The main text may have no standard errors, and refer to the appendix for them; they come from
    there.
    """
    row = _printed(paper).get((table, paper.datasets[dataset], method, metric))
    if row is None or row.value.stderr is not None:
        return None if row is None else row.value
    elsewhere = reported(paper, dataset, method, metric)
    return row.value if elsewhere is None else replace(row.value, stderr=elsewhere.stderr)


def misprint_of(paper: Paper, table: str, dataset: str, method: str) -> str:
    """What is wrong with numbers that the paper printed by mistake; empty where nothing is."""
    return paper.misprints.get((table, paper.datasets[dataset], method), "")


@cache
def _printed(paper: Paper) -> dict[tuple[str, str, str, str], PrintedNumber]:
    rows = paper_rows(paper)
    return {(row.value.table, row.dataset, row.method, row.metric): row for row in rows}


@cache
def _cells(paper: Paper) -> dict[_Cell, tuple[Reported, ...]]:
    cells: dict[_Cell, list[Reported]] = {}
    for row in paper_rows(paper):
        if not row.misprint:
            cell = _cell(paper, row.dataset, row.method, row.metric)
            cells.setdefault(cell, []).append(row.value)
    # Sorting is stable: what is equal here stays in the order of the paper.
    return {
        cell: tuple(sorted(values, key=lambda value: value.stderr is None))
        for cell, values in cells.items()
    }


def _cell(paper: Paper, dataset: str, method: str, metric: str) -> _Cell:
    printed_name = paper.datasets.get(dataset, dataset)
    return _plain(printed_name), _one_method(paper, method), metric.lower()


def _plain(dataset: str) -> str:
    return dataset.lower().replace("-", "")


@cache
def _one_method(paper: Paper, name: str) -> Method | None:
    """What a name stands for, of the several that a method has in the paper; None for others."""
    found = paper.find_method(name)
    return None if found is None else found.canonical()


def _row(paper: Paper, values: Mapping[str, str]) -> PrintedNumber:
    table, dataset, method = (values[name] for name in ("table", "dataset", "method"))
    stderr = _fraction(values["stderr"]) if values["stderr"] else None
    return PrintedNumber(
        dataset=dataset,
        method=method,
        metric=values["metric"],
        value=Reported(mean=_fraction(values["mean"]), stderr=stderr, table=table),
        misprint=paper.misprints.get((table, dataset, method), ""),
    )


def _fraction(percent: str) -> float:
    """Exact in decimals: 77.47 % is the number that is written 0.7747."""
    return float(Decimal(percent) / 100)
