"""What is missing and how long it would take, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from upright.cli.options import show_seeds
from upright.paper.cost import Basis, Cost
from upright.paper.todo import Todo, TodoLine
from upright.terminal import plain_text

__all__ = ["todo_table"]

_WORDS: dict[Basis, str] = {
    "shared": "from runs that may have shared their time with others",
    "extrapolated": "extrapolated from other methods",
}


def todo_table(todo: Todo) -> RenderableType:
    """List tasks, the seeds of a recipe on one line, with a total.

    A line says how many runs it stands for, and has the time of all of them.
    """
    if not todo.lines:
        return plain_text("No run is missing.")
    table = Table(box=box.SIMPLE_HEAD, title="missing", title_justify="left")
    table.add_column("method", overflow="fold")
    table.add_column("runs", justify="right", no_wrap=True)
    for heading in ("seeds", "attacks"):
        table.add_column(heading, overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("from")
    for line in todo.lines:
        table.add_row(*map(plain_text, _row(line)))
    return Group(table, plain_text(_total(todo)))


def _row(line: TodoLine) -> list[str]:
    first = line.tasks[0]
    name = str(first).rpartition(", seed ")[0]
    seeds = show_seeds(sorted(task.plan.main.seed for task in line.tasks))
    kinds = " and ".join(dict.fromkeys(cost.basis for cost in line.costs))
    runs, attacks = str(line.untrained), ", ".join(first.attacks)
    return [name, runs, seeds, attacks, _time(line.costs), kinds]


def _total(todo: Todo) -> str:
    known = [cost for cost in todo.costs if cost.seconds is not None]
    text = _counts(runs=todo.untrained, evaluations=len(todo.costs))
    if known:
        text += f": {_time(known)} on {todo.hardware}, one after the other"
        for basis, words in _WORDS.items():
            if count := sum(cost.basis == basis for cost in known):
                text += f", {count} of {len(known)} times {words}"
    if unknown := len(todo.costs) - len(known):
        text += f"; of {_evaluations(unknown)} no record says how long a step takes"
    return text + "."


def _counts(*, runs: int, evaluations: int) -> str:
    asked = _evaluations(evaluations)
    if not runs:
        return f"No run is missing, but {asked}"
    text = f"{runs} run{'s' * (runs != 1)} missing"
    return text if runs == evaluations else f"{text}, for {asked}"


def _evaluations(count: int) -> str:
    return f"{count} evaluation{'s' * (count != 1)}"


def _time(costs: Iterable[Cost]) -> str:
    """The time that all costs take which are known, in hours and minutes."""
    seconds = [cost.seconds for cost in costs if cost.seconds is not None]
    if not seconds:
        return "?"
    hours, minutes = divmod(round(sum(seconds) / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{max(minutes, 1)} min"
