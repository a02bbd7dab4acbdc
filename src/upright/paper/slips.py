"""Slips of the pen in a paper: names of its numbers that nothing else of it knows.

A number by such a name would fill no cell, and nobody would miss it. That of a table which has no
layout fills none in any case: of it data set, method and metric are looked at.
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
Spot = tuple[str, ...]
"""Where a number stands: table, data set, method and metric, as printed."""


def read_numbers(paper: Paper) -> tuple[Line, ...]:
    """Read a paper's numbers, and refuse those that could not be meant."""
    rows = [values for values in csv.reader(paper.numbers.splitlines()) if values]
    head = tuple(rows[0]) if rows else ()
    if head != _COLUMNS:
        found = ",".join(head) or "nothing"
        raise ValueError(f"numbers begin with the line {','.join(_COLUMNS)}, not with {found}")
    for values in rows[1:]:
        if len(values) != len(_COLUMNS):
            raise ValueError(f"{','.join(values)} has {len(values)} fields, not {len(_COLUMNS)}")
    lines = tuple(dict(zip(_COLUMNS, values, strict=True)) for values in rows[1:])
    for slip in _slips(paper, lines):
        raise ValueError(slip)
    return lines


def _slips(paper: Paper, lines: Collection[Line]) -> Iterator[str]:
    """Say what is wrong, the first thing first."""
    for layout in paper.layouts:
        what = f"the layout {layout.name} is of a data set"
        for dataset in layout.datasets:
            yield from _unknown(what, dataset, paper.datasets)
    for dataset in paper.training:
        yield from _unknown("training is of a data set", dataset, paper.datasets)
    for line in lines:
        yield from _slips_of(paper, line)
    spots = Counter(map(_spot, lines))
    for spot, count in spots.items():
        if count > 1:
            yield f"there are {count} numbers of {_told(spot)}: each cell has one"
    for layout in paper.layouts:
        yield from _empty_columns(layout, spots)
    for table, dataset, method in paper.misprints:
        if not any(spot[:3] == (table, dataset, method) for spot in spots):
            yield f"a misprint is told of {_told((table, dataset, method))}, which has no number"


def _slips_of(paper: Paper, line: Line) -> Iterator[str]:
    spot = _spot(line)
    if not all(map(_is_number, (line["mean"], line["stderr"] or "0"))):
        yield f"{_told(spot)} has the mean {line['mean']!r} and the stderr {line['stderr']!r}"
    yield from _unknown(f"{_told(spot)} is of a data set", spot[1], paper.datasets.values())
    laid_out = [layout for layout in paper.layouts if layout.name == spot[0]]
    # A table without a layout fills no cell, and stands beside records alone.
    known = {each for layout in laid_out or paper.layouts for each in _spots(paper, layout)}
    if laid_out or paper.find_method(spot[2]) is None:
        yield from _unknown(f"{_told(spot)} is of a method", spot[2], {each[2] for each in known})
    yield from _unknown(f"{_told(spot)} is of a metric", spot[3], {each[3] for each in known})
    if laid_out and spot not in known:
        yield f"{_told(spot)} stands in no layout of its table"


def _spots(paper: Paper, layout: Layout) -> Iterator[Spot]:
    for dataset in layout.datasets:
        for method in layout.methods:
            for metric in layout.metrics:
                yield layout.name, paper.datasets[dataset], method, metric


def _empty_columns(layout: Layout, spots: Collection[Spot]) -> Iterator[str]:
    filled = {spot[2] for spot in spots if spot[0] == layout.name}
    for method in layout.methods:
        if method not in filled:
            yield f"the layout {layout.name} has a column {method!r}, of which there is no number"


def _unknown(what: str, name: str, known: Collection[str]) -> Iterator[str]:
    if name not in known:
        near = similar_names(name, known)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
        yield f"{what} that the paper does not have, {name!r}: {meant}"


def _spot(line: Line) -> Spot:
    return tuple(line[name] for name in _COLUMNS[:4])


def _told(spot: Spot) -> str:
    return " / ".join(spot)


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
