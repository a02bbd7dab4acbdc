"""Tables as the page shows them: a line for each method, so that a click sorts the methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from upright.records import Record
from upright.report.asked import ABOVE_NATURAL, above_natural, unlike_the_paper
from upright.report.exhibition import record_id
from upright.report.figures.runtime import time_unit
from upright.report.model import Cell, Estimate, Table
from upright.report.runs import MethodRuns, told_apart

__all__ = [
    "Heading",
    "Sheet",
    "SheetCell",
    "estimate_cell",
    "methods_sheet",
    "paper_sheet",
    "records_sheet",
]

_ABOVE = "above natural"


@dataclass(frozen=True)
class Heading:
    """A column: what its numbers are, and below which heading it stands."""

    text: str
    group: str = ""
    number: bool = True


@dataclass(frozen=True)
class SheetCell:
    """What one cell of a sheet shows, and by what it is sorted."""

    text: str
    order: float | str | None = None
    """What it is sorted by; None is sorted last, whichever way."""
    detail: str = ""
    """A second, quieter line."""
    hint: str = ""
    """Where the number comes from, or why there is none."""
    command: str = ""
    """What to type to get it."""
    best: bool = False
    link: str = ""
    """The id of the record that it comes from."""


@dataclass(frozen=True)
class Sheet:
    """A table of cells; the first cell of each row is its name."""

    name: str
    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[SheetCell, ...], ...]
    ids: tuple[str, ...] = ()
    """Of the rows, where others link to them."""
    label: str = ""
    """By which the paper calls it."""
    notes: tuple[str, ...] = ()
    """What stands below it."""

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Headings above headings: the text, and over how many columns it stands."""
        runs = groupby(self.headings, key=lambda heading: heading.group)
        return tuple((text, len(list(members))) for text, members in runs)


def paper_sheet(table: Table) -> Sheet:
    """Lay out a table of the paper, a line for each of its columns."""
    headings = [Heading("method", number=False)]
    headings += [Heading(row.metric, row.dataset) for row in table.rows]
    rows = [
        (
            SheetCell(column.title, order=column.name),
            *(_cell(row.cells[place]) for row in table.rows),
        )
        for place, column in enumerate(table.columns)
    ]
    name = f"{table.name} {table.part}".strip()
    return Sheet(name, table.title, tuple(headings), tuple(rows), label=name, notes=_notes(rows))


def methods_sheet(runs: Sequence[MethodRuns]) -> Sheet:
    """Lay out all that was measured, a line for each method on each data set."""
    metrics = list(dict.fromkeys(metric for run in runs for metric in run.measured))
    unit, hours = time_unit(max(run.train_seconds or 0.0 for run in runs) / 3600)
    headings = (
        *(Heading(text, number=False) for text in ("method", "network", "data")),
        *(Heading(f"{'natural' if metric == 'nat' else metric} %") for metric in metrics),
        Heading(f"training, {unit}"),
        Heading("steps"),
        Heading("seeds"),
    )
    best = _best(runs)
    rows = [
        (
            _method(run.method, "; ".join(filter(None, (run.asked, apart))), run.records[0]),
            SheetCell(run.model, order=run.model),
            SheetCell(run.dataset, order=run.dataset, detail=run.variant),
            *_accuracies(run, metrics, best),
            _time(run, hours),
            *_training(run),
        )
        for run, apart in zip(runs, told_apart(runs), strict=True)
    ]
    title = "All methods: mean over seeds, with the standard error where there are several"
    return Sheet("methods", title, headings, tuple(rows), notes=_notes(rows))


def _best(runs: Sequence[MethodRuns]) -> dict[tuple[tuple[str, ...], str], float]:
    """The highest means by setting and metric: what was asked something else is no rival.

    What has no rival is not the best of anything.
    """
    means: dict[tuple[tuple[str, ...], str], list[float]] = {}
    for run in runs:
        for metric, found in run.measured.items():
            means.setdefault((run.setting, metric), []).append(found.mean)
    return {place: max(some) for place, some in means.items() if len(some) > 1}


def _accuracies(
    run: MethodRuns, metrics: Sequence[str], best: Mapping[tuple[tuple[str, ...], str], float]
) -> Iterator[SheetCell]:
    above = above_natural({metric: found.mean for metric, found in run.measured.items()})
    for metric in metrics:
        cell = estimate_cell(run.measured.get(metric), best.get((run.setting, metric)))
        yield _marked_above(cell) if metric in above else cell


def _method(name: str, asked: str, record: Record) -> SheetCell:
    """A method, with what it was asked that the paper was not, and what others of its name are not:
    nobody takes one for another."""
    hint = f"evaluated in {record.evaluation.get('precision', 'unknown precision')}"
    return SheetCell(name, order=name, detail=asked, hint=hint, link=record_id(record))


def records_sheet(records: Sequence[Record]) -> Sheet:
    """Lay out the records themselves: what every number on the page is made from."""
    headings = [Heading(text, number=False) for text in ("recipe and seed", "method", "data")]
    headings += [Heading("images"), Heading("accuracies %", number=False)]
    headings += [Heading(text, number=False) for text in ("commit", "hardware", "finished")]
    rows = [
        (
            SheetCell(
                run := f"{record.recipe_hash}-{record.seed}", order=run, hint=_weights(record)
            ),
            SheetCell(record.method, order=record.method, detail=unlike_the_paper(record)),
            SheetCell(record.dataset, order=record.dataset, detail=record.data_variant or ""),
            SheetCell(f"{record.images:,}", order=record.images),
            _measured(record),
            SheetCell((record.commit or "unknown")[:10], hint=record.commit or ""),
            SheetCell(record.hardware, order=record.hardware),
            SheetCell(record.finished[:16].replace("T", " "), order=record.finished),
        )
        for record in records
    ]
    ids = tuple(record_id(record) for record in records)
    return Sheet("records", "Records", tuple(headings), tuple(rows), ids, notes=_notes(rows))


def _measured(record: Record) -> SheetCell:
    text = ", ".join(f"{name} {100 * value:.2f}" for name, value in record.measured.items())
    above = ", ".join(above_natural(record.measured))
    return SheetCell(text, detail=f"{above} {_ABOVE}" if above else "")


def _marked_above(cell: SheetCell) -> SheetCell:
    return replace(cell, detail=", ".join(part for part in (cell.detail, _ABOVE) if part))


def _notes(rows: Iterable[Sequence[SheetCell]]) -> tuple[str, ...]:
    """Explain the mark of accuracies above natural, where a cell has it."""
    marked = any(_ABOVE in cell.detail for row in rows for cell in row)
    return (f"{ABOVE_NATURAL[0].upper()}{ABOVE_NATURAL[1:]}.",) if marked else ()


def _weights(record: Record) -> str:
    digest = record.recipe.get("weights_digest") if record.is_guest else None
    return "" if digest is None else f"SHA-256 of its weights: {digest}"


def _training(run: MethodRuns) -> tuple[SheetCell, SheetCell]:
    """Steps and seeds, where something is known of them."""
    if run.steps is None:
        return SheetCell(""), SheetCell("")
    seeds = len(run.records)
    return SheetCell(f"{run.steps:,}", order=run.steps), SheetCell(str(seeds), order=seeds)


def _time(run: MethodRuns, unit_hours: float) -> SheetCell:
    if run.train_seconds is None:
        return SheetCell("", hint="not trained here")
    text = f"{run.train_seconds / 3600 / unit_hours:.1f}"
    return SheetCell(text, order=run.train_seconds, hint=f"on {run.hardware}")


def estimate_cell(found: Estimate | None, best: float | None) -> SheetCell:
    """Show a mean, which leads to its first record, with its standard error."""
    if found is None:
        return SheetCell("")
    return SheetCell(
        f"{100 * found.mean:.2f}",
        order=found.mean,
        detail="" if found.stderr is None else f"± {100 * found.stderr:.2f}",
        hint=_sources(found),
        best=found.mean == best,
        link=record_id(found.sources[0]),
    )


def _cell(cell: Cell | None) -> SheetCell:
    if cell is None:
        return SheetCell("–", hint="the paper has no number here")
    paper = "" if cell.reported is None else f"paper {100 * cell.reported.mean:.2f}"
    if cell.measured is None:
        return SheetCell("missing", detail=paper, hint=cell.note, command=cell.command)
    found = estimate_cell(cell.measured, cell.measured.mean if cell.best else None)
    if cell.difference is not None:
        paper += f", {cell.difference.in_stderr:+.1f} s.e.".replace("-", "−")
    hint = "; ".join(part for part in (found.hint, cell.choice, cell.note) if part)
    detail = ", ".join(part for part in (found.detail, paper) if part)
    shown = replace(found, detail=detail, hint=hint)
    return _marked_above(shown) if cell.above_natural else shown


def _sources(found: Estimate) -> str:
    runs = ", ".join(f"{source.recipe_hash}-{source.seed}" for source in found.sources)
    return f"{found.images:,} images; from {runs}"
