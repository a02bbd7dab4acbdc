"""Every method that was measured, with its two main accuracies beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable

from upright.records import Reported
from upright.report.lines import spaced
from upright.report.model import Cell, Estimate, Table

__all__ = ["measured_methods", "methods_to_markdown"]


def methods_to_markdown(tables: Iterable[Table], *, metric: str = "grid-775") -> str:
    """Give a table in Markdown for each data set, in the order in which tables name methods.

    Of several names for the same runs, as where one draw leaves nothing to search for, the first is
    shown.
    """
    found = measured_methods(tables)
    return "\n".join(_table(dataset, methods, metric) for dataset, methods in found.items())


def measured_methods(tables: Iterable[Table]) -> dict[str, dict[str, dict[str, Cell]]]:
    """Give the cells that have a measurement, by data set, method and metric.

    Where several tables print a number for one method, the first counts.
    """
    found: dict[str, dict[str, dict[str, Cell]]] = {}
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                if cell is not None and cell.measured is not None:
                    methods = found.setdefault(row.dataset, {})
                    methods.setdefault(column.title, {}).setdefault(row.metric, cell)
    return found


def _table(dataset: str, methods: dict[str, dict[str, Cell]], metric: str) -> str:
    marks: dict[str, str] = {}
    rows = [
        (f"{dataset}, %", "seeds", "natural", "paper", metric, "paper"),
        ("---", *("---:" for _ in range(5))),
        *(_row(name, cells, metric, marks) for name, cells in _without_synonyms(methods).items()),
    ]
    notes = "".join(f"\n{mark} {note}\n" for note, mark in marks.items())
    return "".join(f"| {' | '.join(row)} |\n" for row in rows) + notes


def _without_synonyms(methods: dict[str, dict[str, Cell]]) -> dict[str, dict[str, Cell]]:
    shown: dict[frozenset[str], tuple[str, dict[str, Cell]]] = {}
    for name, cells in methods.items():
        runs = frozenset(
            source.recipe_hash
            for cell in cells.values()
            if cell.measured is not None
            for source in cell.measured.sources
        )
        shown.setdefault(runs, (name, cells))
    return dict(shown.values())


def _row(name: str, cells: dict[str, Cell], metric: str, marks: dict[str, str]) -> tuple[str, ...]:
    shown = [cells.get(each) for each in ("nat", metric)]
    values = [_percent(cell, marks) for cell in shown]
    seeds = min((cell.measured.n for cell in shown if cell and cell.measured), default=0)
    chosen = sorted({cell.choice for cell in cells.values()} - {""})
    title = ", ".join([f"`{spaced(name)}`", *chosen])
    return title, str(seeds), *(part for pair in values for part in pair)


def _percent(cell: Cell | None, marks: dict[str, str]) -> tuple[str, str]:
    """A cell's accuracy in percent, as measured and as the paper has it, marked for its note."""
    if cell is None:
        return "", ""
    mark = marks.setdefault(cell.note, "¹²³⁴"[len(marks)]) if cell.note else ""
    return _number(cell.measured), f"{_number(cell.reported)}{mark}"


def _number(value: Estimate | Reported | None) -> str:
    if value is None:
        return ""
    error = "" if value.stderr is None else f" ± {100 * value.stderr:.2f}"
    return f"{100 * value.mean:.2f}{error}"
