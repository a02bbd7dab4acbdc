"""What is missing and how long it would take, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from upright.origin import hardware
from upright.paper.cost import Basis, Cost, cost_of, timed, usual_hardware
from upright.records import Record
from upright.terminal import plain_text
from upright.train import Recipe
from upright.train.pair import changed, runs_of
from upright.workers.task import Task, is_trained

__all__ = ["todo_table"]

_WORDS: dict[Basis, str] = {
    "shared": "from runs that may have shared their time with others",
    "extrapolated": "extrapolated from other methods",
}


def todo_table(
    tasks: Sequence[Task], records: Sequence[Record], *, device: torch.device, runs: Path
) -> RenderableType:
    """List tasks, the seeds of a recipe on one line, with a total.

    A run that several tasks need counts once, and its training is in the time of the first. One
    that is trained does not count: what is missing then is its evaluation.
    """
    if not tasks:
        return plain_text("No run is missing.")
    known = timed(records)
    place = usual_hardware(known, hardware(device))
    table = Table(box=box.SIMPLE_HEAD, title="missing", title_justify="left")
    for heading in ("run", "seeds", "attacks"):
        table.add_column(heading, overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("from")
    costs: list[Cost] = []
    untrained = _untrained(tasks, runs)
    left = set(untrained)
    for group in _by_recipe(tasks):
        some = []
        for task in group:
            train = left.intersection(runs_of(task.recipe))
            some.append(cost_of(task, known, place, train=train))
            left -= train
        costs += some
        table.add_row(*map(plain_text, _row(group, some)))
    return Group(table, plain_text(_total(costs, place, runs=len(untrained))))


def _untrained(tasks: Iterable[Task], folder: Path) -> set[Recipe]:
    every = {run for task in tasks for run in runs_of(task.recipe)}
    return {run for run in every if not is_trained(run, folder)}


def _by_recipe(tasks: Iterable[Task]) -> list[list[Task]]:
    groups: dict[Task, list[Task]] = {}
    for task in tasks:
        groups.setdefault(replace(task, recipe=changed(task.recipe, seed=0)), []).append(task)
    return list(groups.values())


def _row(group: Sequence[Task], costs: Sequence[Cost]) -> list[str]:
    name = str(group[0]).rpartition(", seed ")[0]
    seeds = ", ".join(str(task.recipe.seed) for task in group)
    kinds = dict.fromkeys(cost.basis for cost in costs)
    return [name, seeds, ", ".join(group[0].attacks), _time(costs), " and ".join(kinds)]


def _total(costs: Sequence[Cost], place: str | None, *, runs: int) -> str:
    known = [cost for cost in costs if cost.seconds is not None]
    text = _counts(runs=runs, evaluations=len(costs))
    if known:
        text += f": {_time(known)} on {place}, one after the other"
        for basis, words in _WORDS.items():
            if count := sum(cost.basis == basis for cost in known):
                text += f", {count} of {len(known)} {words}"
    if unknown := len(costs) - len(known):
        text += f"; of {unknown} no record says how long a step takes"
    return text + "."


def _counts(*, runs: int, evaluations: int) -> str:
    asked = f"{evaluations} evaluation{'s' * (evaluations != 1)}"
    if not runs:
        return f"No run is missing, but {asked}"
    text = f"{runs} run{'s' * (runs != 1)} missing"
    return text if runs == evaluations else f"{text}, for {asked}"


def _time(costs: Iterable[Cost]) -> str:
    """Of all that are known, in hours and minutes."""
    seconds = [cost.seconds for cost in costs if cost.seconds is not None]
    if not seconds:
        return "?"
    hours, minutes = divmod(round(sum(seconds) / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{max(minutes, 1)} min"
