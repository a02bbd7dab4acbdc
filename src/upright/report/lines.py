"""A table as lines of text, which the terminal, Markdown and LaTeX set in their own ways.

Each row of a table becomes a group of lines: what was measured, over how many seeds, what the paper
has, the difference in standard errors (s.e.), and how much of a baseline's error is gone. Lines
that would be empty are left out. Accuracies are in percent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from upright.report.asked import ABOVE_NATURAL
from upright.report.model import Cell, Reduction, Row, Table

__all__ = ["Line", "Lines", "Text", "lines_of", "percent", "spaced"]


@dataclass(frozen=True)
class Text:
    """What stands in one cell or note, and how."""

    content: str = ""
    bold: bool = False
    note: int | None = None
    """Number of the note that belongs to it, from 1."""
    code: bool = False
    """Whether it is to be typed as it is."""


@dataclass(frozen=True)
class Line:
    """A label, and a text for each column."""

    label: str
    texts: tuple[Text, ...]
    leads: bool = False
    """Whether it is the first of a row's lines."""


@dataclass(frozen=True)
class Lines:
    """A table as lines of text, before any format: terminal, Markdown or LaTeX."""

    title: str
    header: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[Text, ...]


def lines_of(table: Table) -> Lines:
    """Write a table as lines of text."""
    notes = _Notes()
    lines = [line for row in table.rows for line in _row_lines(row, notes)]
    if any(cell.reduction for cell in table.cells):
        baselines = tuple(Text(column.baseline or "") for column in table.columns)
        lines.append(Line("error cut from that of", baselines, leads=True))
    name = f"{table.name} ({table.part})" if table.part else table.name
    return Lines(
        title=f"{name}: {table.title}",
        header=tuple(column.title for column in table.columns),
        lines=tuple(lines),
        notes=tuple(notes.texts),
    )


def percent(fraction: float, digits: int = 2) -> str:
    """A fraction in percent, with a real minus sign, and never as a minus zero."""
    text = f"{100 * fraction:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def spaced(title: str) -> str:
    """Let a line break after each comma of a title, which the paper's tables set without spaces."""
    return title.replace(",", ", ")


class _Notes:
    """Numbers notes in the order in which they are first met."""

    def __init__(self) -> None:
        self.texts: list[Text] = []

    def number(self, content: str, *, code: bool = False) -> int:
        note = Text(content, code=code)
        if note not in self.texts:
            self.texts.append(note)
        return self.texts.index(note) + 1


def _row_lines(row: Row, notes: _Notes) -> list[Line]:
    def line(label: str, show: Callable[[Cell], Text], *, leads: bool = False) -> Line:
        dash = Text("–") if leads else Text()
        return Line(label, tuple(show(cell) if cell else dash for cell in row.cells), leads)

    lines = [
        line(f"{row.dataset} {row.metric}", lambda cell: _measured(cell, notes), leads=True),
        line("seeds", _seeds),
        line("paper", lambda cell: _paper(cell, notes)),
        line("difference in s.e.", _difference),
        line("error cut, points (paper)", lambda cell: _reduction(cell, _points)),
        line("error cut, % (paper)", lambda cell: _reduction(cell, _relative)),
    ]
    return [line for line in lines if any(text.content for text in line.texts)]


def _measured(cell: Cell, notes: _Notes) -> Text:
    if cell.measured is not None:
        shown = _with_error(cell.measured.mean, cell.measured.stderr)
        said = "; ".join(part for part in (cell.choice, _above(cell)) if part)
        return Text(shown, bold=cell.best, note=notes.number(said) if said else None)
    return Text("missing", note=notes.number(cell.command, code=True))


def _above(cell: Cell) -> str:
    return ABOVE_NATURAL if cell.above_natural else ""


def _seeds(cell: Cell) -> Text:
    return Text("" if cell.measured is None else str(cell.measured.n))


def _paper(cell: Cell, notes: _Notes) -> Text:
    if cell.reported is None:
        return Text()
    shown = _with_error(cell.reported.mean, cell.reported.stderr)
    return Text(shown, note=notes.number(cell.note) if cell.note else None)


def _difference(cell: Cell) -> Text:
    if cell.difference is None:
        return Text()
    value = cell.difference.in_stderr
    return Text(f"{value:+.1f}".replace("-", "−"), bold=cell.verdict in ("above", "short"))


def _reduction(cell: Cell, show: Callable[[Reduction], str]) -> Text:
    if cell.reduction is None:
        return Text()
    paper = "" if cell.reported_reduction is None else f" ({show(cell.reported_reduction)})"
    return Text(show(cell.reduction) + paper)


def _points(reduction: Reduction) -> str:
    return percent(reduction.absolute)


def _relative(reduction: Reduction) -> str:
    return percent(reduction.relative, 0)


def _with_error(mean: float, stderr: float | None) -> str:
    return percent(mean) if stderr is None else f"{percent(mean)} ± {percent(stderr)}"
