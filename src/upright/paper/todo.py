"""What is to be done, and how long it would take: tasks beside what records tell of their costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from upright.paper.cost import Cost, Times
from upright.train import Recipe
from upright.workers.task import Task, is_trained

__all__ = ["Todo", "TodoLine", "todo_of", "untrained_runs"]


@dataclass(frozen=True)
class TodoLine:
    """Tasks that differ in their seed alone, and what each would take."""

    tasks: tuple[Task, ...]
    costs: tuple[Cost, ...]
    untrained: int
    """How many runs are to be trained for them; one that an earlier line needs counts there."""


@dataclass(frozen=True)
class Todo:
    """All tasks, and where they would take so long."""

    lines: tuple[TodoLine, ...]
    untrained: int
    """How many runs are to be trained; one that several tasks need counts once."""
    hardware: str | None
    """Of which the times are; None where nothing is known of any."""

    @property
    def costs(self) -> tuple[Cost, ...]:
        return tuple(cost for line in self.lines for cost in line.costs)


def todo_of(tasks: Sequence[Task], times: Times, *, runs: Path) -> Todo:
    """Estimate tasks, whose runs lie below the folder ``runs``.

    The training of a run that several tasks need is in the time of the first. One that is trained
    does not count: what is missing then is its evaluation.
    """
    untrained = untrained_runs(tasks, runs)
    left, lines = set(untrained), []
    for group in _by_recipe(tasks):
        costs, before = [], len(left)
        for task in group:
            train = left.intersection(task.plan.runs)
            costs.append(times.cost(task, train))
            left -= train
        lines.append(TodoLine(tuple(group), tuple(costs), before - len(left)))
    return Todo(tuple(lines), len(untrained), times.hardware)


def untrained_runs(tasks: Iterable[Task], folder: Path) -> set[Recipe]:
    """The runs of tasks that have not taken all their steps below a folder."""
    every = {run for task in tasks for run in task.plan.runs}
    return {run for run in every if not is_trained(run, folder)}


def _by_recipe(tasks: Iterable[Task]) -> list[list[Task]]:
    groups: dict[Task, list[Task]] = {}
    for task in tasks:
        groups.setdefault(replace(task, plan=task.plan.changed(seed=0)), []).append(task)
    return list(groups.values())
