"""Tables for the terminal, in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text as RichText

from upright.report.lines import Line, Lines, Text, lines_of, spaced
from upright.report.model import Cell, Column, Table

__all__ = ["to_csv", "to_latex", "to_markdown", "to_terminal"]


@dataclass(frozen=True)
class _Fitting:
    """A table that is cut into blocks of columns where it is wider than the terminal."""

    lines: Lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label = max(len(line.label) for line in self.lines.lines) + 6
        cell = max(len(_plain(text)) for line in self.lines.lines for text in line.texts) + 3
        columns = len(self.lines.header)
        blocks = math.ceil(columns / max(1, (options.max_width - label) // cell))
        size = math.ceil(columns / blocks)
        yield RichText(self.lines.title, "bold")
        for start in range(0, columns, size):
            yield _block(self.lines, slice(start, start + size))
        for number, note in enumerate(self.lines.notes, start=1):
            # Cut by the terminal, not by us: what is to be typed is copied as one line.
            yield RichText(f"[{number}] {note.content}", no_wrap=True, overflow="ignore")


def to_terminal(table: Table) -> RenderableType:
    """A table for ``rich``, with its notes below it."""
    return _Fitting(lines_of(table))


def _block(lines: Lines, columns: slice) -> RichTable:
    block = RichTable(box=box.SIMPLE_HEAD)
    block.add_column("accuracy in %", no_wrap=True)
    for name in lines.header[columns]:
        block.add_column(RichText(spaced(name)), justify="right")
    for line in lines.lines:
        label = RichText(line.label if line.leads else f"  {line.label}")
        texts = [RichText(_plain(text), _style(text, line)) for text in line.texts[columns]]
        block.add_row(label, *texts)
    return block


def to_markdown(table: Table) -> str:
    """A table in GitHub's Markdown, with its notes below it."""
    lines = lines_of(table)
    rows = [
        ["accuracy in %", *map(_markdown_escaped, lines.header)],
        ["---", *("---:" for _ in lines.header)],
        *([_markdown_label(line), *map(_markdown, line.texts)] for line in lines.lines),
    ]
    notes = [
        f"{number}. `{note.content}`" if note.code else f"{number}. {note.content}"
        for number, note in enumerate(lines.notes, start=1)
    ]
    text = [f"**{_markdown_escaped(lines.title)}**", "", *(f"| {' | '.join(r)} |" for r in rows)]
    return "\n".join([*text, *(["", *notes] if notes else []), ""])


def to_latex(table: Table) -> str:
    """A table in LaTeX that needs no package, with its notes below it."""
    lines = lines_of(table)
    body = [
        rf"{_latex_label(line)} & {' & '.join(map(_latex, line.texts))} \\" for line in lines.lines
    ]
    rule = [r"\hline"]
    ruled = [
        part
        for line, text in zip(lines.lines, body, strict=True)
        for part in ([*rule, text] if line.leads else [text])
    ]
    notes = [
        rf"\par [{number}] {_latex_note(note)}" for number, note in enumerate(lines.notes, start=1)
    ]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{latex_escaped(lines.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(lines.header)}}}",
            rf"accuracy in \% & {' & '.join(map(latex_escaped, lines.header))} \\",
            *ruled,
            *rule,
            r"\end{tabular}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


_CSV_COLUMNS = (
    "table",
    "part",
    "dataset",
    "metric",
    "method",
    "mean",
    "stderr",
    "seeds",
    "reported_mean",
    "reported_stderr",
    "difference",
    "difference_stderr",
    "difference_in_stderr",
    "limit_in_stderr",
    "spread_from",
    "baseline",
    "error_reduction",
    "relative_error_reduction",
    "reported_error_reduction",
    "reported_relative_error_reduction",
    "verdict",
    "best",
    "oracle",
    "chosen_weight",
    "note",
    "records",
    "command",
)


def to_csv(tables: Iterable[Table]) -> str:
    """All cells of tables, a line for each; accuracies as fractions, nothing rounded.

    ``records`` are those that a cell is the mean of, each as the hash of its recipe and its seed.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                if cell is not None:
                    place = (table.name, table.part, row.dataset, row.metric, column.name)
                    writer.writerow([*place, *_csv_values(cell, column)])
    return text.getvalue()


def _csv_values(cell: Cell, column: Column) -> list[object]:
    measured, reported, difference = cell.measured, cell.reported, cell.difference
    nothing = (None, None)
    reductions = [
        value
        for each in (cell.reduction, cell.reported_reduction)
        for value in ((each.absolute, each.relative) if each else nothing)
    ]
    return [
        *((measured.mean, measured.stderr, measured.n) if measured else (None, None, 0)),
        *((reported.mean, reported.stderr) if reported else nothing),
        *((difference.absolute, difference.stderr) if difference else nothing),
        *((difference.in_stderr, difference.limit) if difference else nothing),
        difference.basis if difference else None,
        column.baseline,
        *reductions,
        cell.verdict,
        cell.best,
        column.oracle,
        cell.weight,
        cell.note,
        " ".join(f"{one.recipe_hash}/{one.seed}" for one in (measured.sources if measured else ())),
        cell.command,
    ]


def _plain(text: Text) -> str:
    return text.content if text.note is None else f"{text.content} [{text.note}]"


def _style(text: Text, line: Line) -> str:
    if text.bold:
        return "bold"
    return "" if line.leads else "dim"


def _markdown(text: Text) -> str:
    shown = _markdown_escaped(_plain(text))
    return f"**{shown}**" if text.bold else shown


def _markdown_label(line: Line) -> str:
    label = _markdown_escaped(line.label)
    return f"**{label}**" if line.leads else label


def _markdown_escaped(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def _latex(text: Text) -> str:
    shown = latex_escaped(text.content)
    shown = shown if text.note is None else f"{shown} [{text.note}]"
    return rf"\textbf{{{shown}}}" if text.bold else shown


def _latex_label(line: Line) -> str:
    label = latex_escaped(line.label)
    return label if line.leads else rf"\quad {label}"


def _latex_note(note: Text) -> str:
    return (
        rf"\texttt{{{latex_escaped(note.content)}}}" if note.code else latex_escaped(note.content)
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": r"\textendash{}",
    "λ": r"$\lambda$",
    "×": r"$\times$",
    "'": r"\textquotesingle{}",
}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}


def latex_escaped(text: str) -> str:
    """Text as LaTeX shows it literally."""
    # Hyphens are set apart, so that two of them do not become a dash.
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"-(?=-)", "-{}", escaped)
