"""Which missing runs come first: those that fill most empty cells in the least time.

Who has half an hour of a GPU wants it to go there. All others follow as they came: another size of
batch where one is recorded, and further seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import torch

from upright.origin import hardware
from upright.paper.cells import wanted, with_run
from upright.paper.cost import cost_of, timed, usual_hardware
from upright.paper.judge import Judge
from upright.paper.needs import Need, printed_cells
from upright.paper.paper import Layout, Paper
from upright.paper.todo import untrained_runs
from upright.records import Record
from upright.train import Recipe
from upright.workers.task import Task

__all__ = ["most_cells_first"]

Cell = tuple[str, str, str, str]
"""Table, data set, method and metric of a number that is printed."""


def most_cells_first(
    paper: Paper,
    layouts: Iterable[Layout],
    tasks: Sequence[Task],
    records: Sequence[Record],
    *,
    device: torch.device,
    runs: Path,
) -> tuple[Task, ...]:
    """Put tasks in order, whose runs lie below the folder ``runs``.

    One after another the task that fills most empty cells a second, with what those before it have
    trained and filled. Those of which no time is known come after those of which one is.
    """
    known = timed(paper, records)
    place = usual_hardware(known, hardware(device))
    seconds = cache(lambda task, train: cost_of(task, known, place, train=train).seconds)
    fills = _fillings(paper, layouts, records)
    cells = {task: _filled(task, fills) for task in tasks}
    left, first = untrained_runs(tasks, runs), list[Task]()

    def worth(task: Task) -> tuple[bool, float]:
        needed = seconds(task, frozenset[Recipe](left.intersection(task.plan.runs)))
        return needed is not None, len(cells[task]) / max(needed or 1.0, 1e-9)

    while worthy := [task for task in tasks if cells[task]]:
        best = max(worthy, key=worth)
        first.append(best)
        left.difference_update(best.plan.runs)
        done = cells[best]
        cells = {task: some - done for task, some in cells.items()}
    chosen = set(first)
    return (*first, *(task for task in tasks if task not in chosen))


def _fillings(
    paper: Paper, layouts: Iterable[Layout], records: Iterable[Record]
) -> dict[Need, set[Cell]]:
    """The empty cells that each need would fill."""
    judge = Judge(paper, records, seeds=1)
    found: dict[Need, set[Cell]] = {}
    for table, dataset, method, metric in printed_cells(paper, layouts):
        if judge.measured(dataset, method, metric) is None:
            for plan in wanted(paper, dataset, method):
                cell = (table, dataset, method, metric)
                found.setdefault((plan, metric.lower()), set()).add(cell)
    return found


def _filled(task: Task, fills: dict[Need, set[Cell]]) -> frozenset[Cell]:
    plan = with_run(task.plan, seed=0)
    every = (fills.get((plan, metric), set()) for metric in ("nat", *task.attacks))
    return frozenset[Cell]().union(*every)
