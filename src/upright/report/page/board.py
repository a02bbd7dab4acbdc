"""A leaderboard as the page shows it: a line for each network, method and recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upright.records import Reported
from upright.report.figures.runtime import time_unit
from upright.report.model import Estimate, Leaderboard, Standing
from upright.report.page.sheet import Heading, Sheet, SheetCell, estimate_cell

__all__ = ["leaderboard_sheet"]


def leaderboard_sheet(board: Leaderboard) -> Sheet:
    """Lay out a leaderboard."""
    times = [row.training.seconds for row in board.rows if row.training is not None]
    unit, hours = time_unit(max(times, default=0.0) / 3600)
    headings = (
        *(Heading(text, number=False) for text in ("network", "trained by")),
        *(Heading(name, "accuracy, %") for name in ("natural", board.metric, board.finer)),
        *(Heading(text) for text in ("seeds", "parameters", "GFLOP", f"training, {unit}")),
    )
    best = _best(board.rows)
    rows = tuple(
        (
            SheetCell(network := " + ".join(row.networks), order=network),
            _method(row),
            *(_accuracy(*each, row.seeds) for each in zip(row.accuracies, best, strict=True)),
            SheetCell(str(row.seeds), order=row.seeds),
            *_size(row),
            _time(row, hours),
        )
        for row in board.rows
    )
    return Sheet(f"leaderboard {board.name}", board.title, headings, rows, notes=(board.total,))


def _best(rows: Sequence[Standing]) -> list[float | None]:
    """The highest mean of each accuracy, where several were measured here."""
    columns = zip(*(row.accuracies for row in rows), strict=True)
    means = [[each.mean for each in column if isinstance(each, Estimate)] for column in columns]
    return [max(some) if len(some) > 1 else None for some in means]


def _method(row: Standing) -> SheetCell:
    """A method above its recipe; what others report is marked, so that nobody takes it for ours."""
    words = ", ".join(row.recipe)
    if isinstance(row.attacked, Reported):
        source = ", ".join(filter(None, (row.source, f"table {row.attacked.table}")))
        words = "; ".join(filter(None, (f"reported by {source}", row.caveat)))
    return SheetCell(row.method, order=f"{row.method} {words}", detail=words)


def _accuracy(found: Estimate | Reported | None, best: float | None, seeds: int) -> SheetCell:
    if isinstance(found, Reported):
        spread = "" if found.stderr is None else f"± {100 * found.stderr:.2f}"
        return SheetCell(f"{100 * found.mean:.2f}", order=found.mean, detail=spread)
    cell = estimate_cell(found, best)
    if found is None or found.n == seeds:
        return cell
    some = f"{found.n} of {seeds} seeds"
    return replace(cell, detail=", ".join(filter(None, (cell.detail, some))))


def _size(row: Standing) -> tuple[SheetCell, SheetCell]:
    """Parameters and GFLOP."""
    if row.parameters is None or row.operations is None:
        return SheetCell(""), SheetCell("")
    parameters = SheetCell(f"{row.parameters:,}", order=row.parameters)
    return parameters, SheetCell(f"{row.operations / 1e9:.3g}", order=row.operations)


def _time(row: Standing, unit_hours: float) -> SheetCell:
    if row.training is None:
        return SheetCell("")
    seconds = row.training.seconds
    return SheetCell(
        f"{seconds / 3600 / unit_hours:.1f}",
        order=seconds,
        detail=row.training.sharing,
        hint=f"on {row.training.hardware}",
    )
