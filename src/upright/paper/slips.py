"""Slips of the pen in a paper: names of its numbers that nothing else of it knows.

A number by such a name would fill no cell, and nobody would miss it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal, InvalidOperation

from upright.paper.paper import Layout, Paper
from upright.registry import similar_names

__all__ = ["read_numbers"]

_COLUMNS = ("table", "dataset", "method", "metric", "mean", "stderr")

Line = Mapping[str, str]
Cell = tuple[str, ...]
"""Table, data set, method and metric, as printed."""


def read_numbers(paper: Paper) -> tuple[Line, ...]:
    """Read a paper's numbers, and refuse those that could not be meant."""
    reader = csv.DictReader(paper.numbers.splitlines())
    if tuple(reader.fieldnames or ()) != _COLUMNS:
        found = ",".join(reader.fieldnames or ()) or "nothing"
        raise ValueError(f"numbers begin with the line {','.join(_COLUMNS)}, not with {found}")
    lines = tuple(reader)
    for slip in _slips(paper, lines):
        raise ValueError(slip)
    return lines


def _slips(paper: Paper, lines: Collection[Line]) -> Iterator[str]:
    """Say what is wrong, the first thing first."""
    for layout in paper.layouts:
        for dataset in layout.datasets:
            yield from _unknown(
                f"the layout {layout.name} is of a data set", dataset, paper.datasets
            )
    for dataset in paper.training:
        yield from _unknown("training is of a data set", dataset, paper.datasets)
    for line in lines:
        yield from _slips_of(paper, line)
    cells = Counter(map(_cell, lines))
    for cell, count in cells.items():
        if count > 1:
            yield f"there are {count} numbers of {_told(cell)}: each cell has one"
    for layout in paper.layouts:
        yield from _empty_columns(layout, cells)
    for table, dataset, method in paper.misprints:
        if not any(cell[:3] == (table, dataset, method) for cell in cells):
            yield f"a misprint is told of {_told((table, dataset, method))}, which has no number"


def _slips_of(paper: Paper, line: Line) -> Iterator[str]:
    cell = _cell(line)
    numbers = line["mean"], line["stderr"] or "0"
    if not all(map(_is_number, numbers)):
        yield f"{_told(cell)} has the mean {line['mean']!r} and the stderr {line['stderr']!r}"
    layouts = [layout for layout in paper.layouts if layout.name == cell[0]]
    yield from _unknown(f"{_told(cell)} is of a data set", cell[1], paper.datasets.values())
    if not layouts:  # a table that only stands beside records
        return
    known = {each for layout in layouts for each in _cells(paper, layout)}
    for place, kind in ((2, "method"), (3, "metric")):
        yield from _unknown(f"{_told(cell)} is of a {kind}", cell[place], {c[place] for c in known})
    if cell not in known:
        yield f"{_told(cell)} stands in no layout of its table"


def _cells(paper: Paper, layout: Layout) -> Iterator[Cell]:
    for dataset in layout.datasets:
        for method in layout.methods:
            for metric in layout.metrics:
                yield layout.name, paper.datasets[dataset], method, metric


def _empty_columns(layout: Layout, cells: Collection[Cell]) -> Iterator[str]:
    filled = {cell[2] for cell in cells if cell[0] == layout.name}
    for method in layout.methods:
        if method not in filled:
            yield f"the layout {layout.name} has a column {method!r}, of which there is no number"


def _unknown(what: str, name: str, known: Collection[str]) -> Iterator[str]:
    if name not in known:
        near = similar_names(name, known)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
        yield f"{what} that the paper does not have, {name!r}: {meant}"


def _cell(line: Line) -> Cell:
    return tuple(line[name] for name in _COLUMNS[:4])


def _told(cell: Cell) -> str:
    return " / ".join(cell)


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
