"""From records to the paper's tables."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from upright.paper.cells import by_recipe, chosen_weight, misprint_of, printed, wanted
from upright.paper.layout import LAYOUTS, PAPER_NAMES, Layout, table_names
from upright.paper.method import Method, spelled
from upright.paper.reported import caveat, reported
from upright.records import Record, Reported
from upright.report import Cell, Column, Estimate, Row, Table
from upright.report.compare import (
    difference,
    estimate,
    pooled_spread,
    reduction,
    reported_reduction,
)
from upright.train import Plan

__all__ = ["fill_tables", "select"]

Index = Mapping[Plan, tuple[Record, ...]]


def select(
    *, tables: Collection[str] = (), datasets: Collection[str] = (), methods: Iterable[str] = ()
) -> tuple[Layout, ...]:
    """Choose tables, data sets and methods; all of them where none is named."""
    known = {spelled(method): method for layout in LAYOUTS for method in layout.methods}
    named = [known.get(name, name) for name in map(spelled, methods)]
    _check("table", tables, table_names())
    _check("data set", datasets, PAPER_NAMES)
    _check("method", named, sorted(known.values()))
    chosen = [
        _narrowed(layout, named, datasets)
        for layout in LAYOUTS
        if layout.name in tables or not tables
    ]
    found = tuple(layout for layout in chosen if layout.methods and layout.datasets)
    if not found:
        raise ValueError("no table of the paper has these methods on these data sets")
    return found


def _narrowed(layout: Layout, methods: Collection[str], datasets: Collection[str]) -> Layout:
    """The part of a table with these methods and data sets, without columns of dashes alone."""
    rows = [each for each in layout.datasets if each in datasets or not datasets]
    columns = [
        method
        for method in layout.methods
        if (method in methods or not methods)
        and any(printed(layout.name, row, method, layout.metrics[0]) for row in rows)
    ]
    return replace(layout, methods=tuple(columns), datasets=tuple(rows))


def fill_tables(
    layouts: Iterable[Layout], records: Iterable[Record], *, seeds: int = 5
) -> tuple[Table, ...]:
    """Lay out what records say; a cell with fewer seeds has the command that makes the others."""
    index = by_recipe(records)
    return tuple(_table(layout, index, seeds) for layout in layouts)


def shown(dataset: str, method: str, index: Index) -> tuple[Record, ...]:
    """The records of a method; of two batch sizes those with the higher grid-775 accuracy."""
    versions = [index[recipe] for recipe in wanted(dataset, method) if recipe in index]
    return max(versions, key=_merit, default=())


def _merit(records: tuple[Record, ...]) -> tuple[float, float]:
    found = (estimate(records, "grid-775"), estimate(records, "nat"))
    grid, natural = (-1.0 if each is None else each.mean for each in found)
    return grid, natural


def _table(layout: Layout, index: Index, seeds: int) -> Table:
    rows = [
        _row(layout, dataset, metric, index, seeds)
        for dataset in layout.datasets
        for metric in layout.metrics
    ]
    asked = {name: Method.named(name) for name in layout.methods}
    columns = [
        Column(name=name, baseline=method.baseline, oracle=method.oracle)
        for name, method in asked.items()
    ]
    return Table(
        name=layout.name,
        part=layout.part,
        title=layout.title,
        columns=tuple(columns),
        rows=tuple(row for row in rows if any(row.cells)),
    )


def _row(layout: Layout, dataset: str, metric: str, index: Index, seeds: int) -> Row:
    pooled = _pooled(dataset, metric, index)
    cells = [
        _cell(layout, dataset, method, metric, index, seeds, pooled) for method in layout.methods
    ]
    # An oracle is no better than a defence, however high its numbers are.
    means = [
        None
        if cell is None or cell.measured is None or Method.named(method).oracle
        else cell.measured.mean
        for method, cell in zip(layout.methods, cells, strict=True)
    ]
    highest = max((mean for mean in means if mean is not None), default=None)
    marked = (
        cell and replace(cell, best=mean is not None and mean == highest)
        for cell, mean in zip(cells, means, strict=True)
    )
    return Row(dataset=PAPER_NAMES[dataset], metric=metric, cells=tuple(marked))


def _cell(
    layout: Layout,
    dataset: str,
    method: str,
    metric: str,
    index: Index,
    seeds: int,
    pooled: float | None,
) -> Cell | None:
    number = printed(layout.name, dataset, method, metric)
    if number is None:
        return None
    measured = _measured(dataset, method, metric, index)
    misprint = misprint_of(layout.name, dataset, method)
    natural = _measured(dataset, method, "nat", index)
    full = measured is not None and measured.n >= seeds
    cell = Cell(
        measured=measured,
        reported=number,
        above_natural=bool(measured and natural and measured.mean > natural.mean),
        difference=None
        if measured is None or misprint
        else difference(measured, number, pooled=pooled),
        note=misprint or caveat(method, metric),
        weight=chosen_weight(dataset, method),
        command="" if full else _command(layout.name, dataset, method, seeds),
    )
    baseline = Method.named(method).baseline
    if baseline is None or misprint:
        return cell
    before = _measured(dataset, baseline, metric, index)
    return replace(
        cell,
        reduction=reduction(measured.mean, before.mean) if measured and before else None,
        reported_reduction=reported_reduction(
            number, _reported_baseline(layout.name, dataset, baseline, metric)
        ),
    )


def _measured(dataset: str, method: str, metric: str, index: Index) -> Estimate | None:
    return estimate(shown(dataset, method, index), metric.lower())


def _pooled(dataset: str, metric: str, index: Index) -> float | None:
    """The spread between seeds over all methods of a data set, chosen for a cell or not."""
    alike = (records for recipe, records in index.items() if recipe.main.data == dataset)
    return pooled_spread(alike, metric.lower())


def _reported_baseline(table: str, dataset: str, method: str, metric: str) -> Reported | None:
    """As the same table prints it, or else the paper's number for it."""
    return printed(table, dataset, method, metric) or reported(dataset, method, metric)


def _command(table: str, dataset: str, method: str, seeds: int) -> str:
    words = ["upright", "reproduce", "--table", table, "--dataset", dataset, "--method", method]
    return shlex.join([*words, "--seeds", str(seeds)])


def _check(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"the paper has no {kind} {name!r}; choose from {', '.join(known)}")
