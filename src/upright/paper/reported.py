"""Every accuracy of the paper's tables, and how to find the one to compare with.

``reported.csv`` has the tables as they are printed, in percent, in the order of the paper. Several
tables may have the same cell, and not all of them agree. Then these rules hold, in this order:

- A row that the paper printed by mistake is never the answer (see ``_MISPRINTS``).
- A number with its standard error comes before one without: the appendix before the main text.
- Of those, the first in the paper wins: the tables that compare methods before those that look
  at one aspect, such as finer grids or more tries.

So AT(rob, Wo-10) at grid-775 is that of ``compareadv1``, not of ``finer_grid``; L2(nat, Wo-10) on
CIFAR-10 is the 75.46 of the appendix, not the 75.64 of ``comparereg``; and KL(nat, rnd) there is
89.33 and 73.50, not 89.34 or, as Wo-1, 73.40.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

from upright.paper.method import Method
from upright.records import Reported

__all__ = ["PrintedNumber", "all_reported", "caveat", "paper_rows", "reported"]

_MISPRINTS = {
    ("compareadv3", "CIFAR-100", "ALP(rob,S-PGD)"): (
        "a misprint: the figures of KL(nat, S-PGD) on CIFAR-10"
    ),
    ("wok_diffk", "CIFAR-10", "ALP(rob,Wo-1)"): (
        "a misprint: the figures of KL(rob, rnd); compareadv4 has those of ALP(rob, rnd)"
    ),
}


_Cell = tuple[str, Method | None, str]
"""A data set, a method and a metric."""


@dataclass(frozen=True, kw_only=True)
class PrintedNumber:
    """A number of the paper, with data set, method and metric as the paper spells them."""

    dataset: str
    method: str
    metric: str
    value: Reported

    @property
    def misprint(self) -> str:
        """What is wrong with the number; empty where nothing is."""
        return _MISPRINTS.get((self.value.table, self.dataset, self.method), "")


@cache
def paper_rows() -> tuple[PrintedNumber, ...]:
    """All 273 numbers, in the order of the paper, misprints included."""
    text = files("upright.paper").joinpath("reported.csv").read_text(encoding="utf-8")
    return tuple(_row(values) for values in csv.DictReader(text.splitlines()))


def reported(dataset: str, method: str, metric: str) -> Reported | None:
    """What the paper reports, or None where it reports nothing.

    Args:
        dataset: ``cifar10`` or ``CIFAR-10``, and so on.
        method: in the paper's notation, such as ``KL(rob, Wo-10)``, with spaces or without.
        metric: ``nat``, or the name of an attack, such as ``grid-775`` or ``s-pgd``.

    >>> reported("cifar10", "KL(rob, Wo-10)", "grid-775").mean
    0.7747
    """
    found = all_reported(dataset, method, metric)
    return found[0] if found else None


def caveat(method: str, metric: str) -> str:
    """How a number was measured otherwise than the paper says; empty where it was not.

    For S-PGD the authors' program moves images by a spatial transformer. Its coordinates span 2
    over 64 px, and shifts are divided by 64: images move half as far, in training and in the
    attacks at its end. Natural accuracy is measured on images that are not moved.
    """
    halved = Method.named(method).climbs and metric != "nat"
    return "the authors' program tries shifts of at most 1.5 px here" if halved else ""


def all_reported(dataset: str, method: str, metric: str) -> tuple[Reported, ...]:
    """Every table's number for the same cell, the one to compare with first; no misprints."""
    return _cells().get(_cell(dataset, method, metric), ())


@cache
def _cells() -> dict[_Cell, tuple[Reported, ...]]:
    cells: dict[_Cell, list[Reported]] = {}
    for row in paper_rows():
        if not row.misprint:
            cell = _cell(row.dataset, row.method, row.metric)
            cells.setdefault(cell, []).append(row.value)
    # Sorting is stable: what is equal here stays in the order of the paper.
    return {
        cell: tuple(sorted(values, key=lambda value: value.stderr is None))
        for cell, values in cells.items()
    }


def _cell(dataset: str, method: str, metric: str) -> _Cell:
    return dataset.lower().replace("-", ""), _one_method(method), metric.lower()


def _one_method(name: str) -> Method | None:
    """What a name stands for, of the several that a method has in the paper; None for others."""
    try:
        return Method.named(name).canonical()
    except ValueError:
        return None


def _row(values: dict[str, str]) -> PrintedNumber:
    stderr = _fraction(values["stderr"]) if values["stderr"] else None
    return PrintedNumber(
        dataset=values["dataset"],
        method=values["method"],
        metric=values["metric"],
        value=Reported(mean=_fraction(values["mean"]), stderr=stderr, table=values["table"]),
    )


def _fraction(percent: str) -> float:
    """Exact in decimals: 77.47 % is the number that is written 0.7747."""
    return float(Decimal(percent) / 100)
