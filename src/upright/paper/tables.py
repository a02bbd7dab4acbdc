"""From records to a paper's tables: which are chosen, and their rows, cell by cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from upright.paper.judge import Judge
from upright.paper.numbers import printed
from upright.paper.paper import Layout, Paper, spelled
from upright.records import Record
from upright.report import Cell, Column, Row, Table

__all__ = ["fill_tables", "select"]


def select(
    paper: Paper,
    *,
    tables: Collection[str] = (),
    datasets: Collection[str] = (),
    methods: Iterable[str] = (),
) -> tuple[Layout, ...]:
    """Choose tables, data sets and methods; all of them where none is named."""
    known = {spelled(method): method for layout in paper.layouts for method in layout.methods}
    named = [known.get(name, name) for name in map(spelled, methods)]
    paper.check("table", tables, paper.table_names)
    paper.check("data set", datasets, paper.datasets)
    paper.check("method", named, sorted(known.values()))
    chosen = [
        _narrowed(paper, layout, named, datasets)
        for layout in paper.layouts
        if layout.name in tables or not tables
    ]
    found = tuple(layout for layout in chosen if layout.methods and layout.datasets)
    if not found:
        asked = [", ".join(some) for some in (tables, named, datasets) if some]
        raise ValueError(f"the paper has no numbers of {' on '.join(asked)}; it has {_has(paper)}")
    return found


def _has(paper: Paper) -> str:
    """Which tables are of which data sets, in words."""
    rows = dict.fromkeys((layout.name, ", ".join(layout.datasets)) for layout in paper.layouts)
    return "; ".join(f"{name} of {datasets}" for name, datasets in rows)


def _narrowed(
    paper: Paper, layout: Layout, methods: Collection[str], datasets: Collection[str]
) -> Layout:
    """The part of a table with these methods and data sets, without columns of dashes alone."""
    rows = [each for each in layout.datasets if each in datasets or not datasets]
    columns = [
        method
        for method in layout.methods
        if (method in methods or not methods)
        and any(printed(paper, layout.name, row, method, layout.metrics[0]) for row in rows)
    ]
    return replace(layout, methods=tuple(columns), datasets=tuple(rows))


def fill_tables(
    paper: Paper,
    layouts: Iterable[Layout],
    records: Iterable[Record],
    *,
    seeds: int = 5,
    batches: Collection[int] = (),
    options: Sequence[str] = (),
) -> tuple[Table, ...]:
    """Lay out what records say; a cell with fewer seeds has the command that makes the others.

    The command asks for these sizes of batch, or for all, and has these options besides.
    """
    judge = Judge(paper, records, seeds=seeds, batches=batches, options=options)
    return tuple(_table(judge, layout) for layout in layouts)


def _table(judge: Judge, layout: Layout) -> Table:
    rows = [
        _row(judge, layout, dataset, metric)
        for dataset in layout.datasets
        for metric in layout.metrics
    ]
    return Table(
        name=layout.name,
        part=layout.part,
        title=layout.title,
        columns=tuple(_column(judge.paper, name) for name in layout.methods),
        rows=tuple(row for row in rows if any(row.cells)),
    )


def _column(paper: Paper, name: str) -> Column:
    method = paper.method(name)
    return Column(name=name, baseline=paper.baseline(method), oracle=method.oracle)


def _row(judge: Judge, layout: Layout, dataset: str, metric: str) -> Row:
    cells = [judge.cell(layout, dataset, method, metric) for method in layout.methods]
    # An oracle is no better than a defence, however high its numbers are.
    means = [
        None if judge.paper.method(method).oracle else _mean(cell)
        for method, cell in zip(layout.methods, cells, strict=True)
    ]
    highest = max((mean for mean in means if mean is not None), default=None)
    marked = (
        cell and replace(cell, best=mean is not None and mean == highest)
        for cell, mean in zip(cells, means, strict=True)
    )
    return Row(dataset=judge.paper.datasets[dataset], metric=metric, cells=tuple(marked))


def _mean(cell: Cell | None) -> float | None:
    return None if cell is None or cell.measured is None else cell.measured.mean
