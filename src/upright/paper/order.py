"""Which missing runs come first: those that fill most empty cells in the least time.

Who has half an hour of a GPU wants it to go there. All others follow as they came: another size of
batch where one is recorded, and further seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from upright.paper.cells import recipe_of, wanted, with_run
from upright.paper.cost import Times
from upright.paper.judge import Judge
from upright.paper.needs import Need, PrintedCell, printed_cells
from upright.paper.paper import Layout, Paper
from upright.paper.todo import untrained_runs
from upright.records import Record
from upright.train import Recipe
from upright.workers.task import Task

__all__ = ["most_cells_first"]


def most_cells_first(
    paper: Paper,
    layouts: Iterable[Layout],
    tasks: Sequence[Task],
    records: Iterable[Record],
    *,
    times: Times,
    runs: Path,
) -> tuple[Task, ...]:
    """Put tasks in order, whose runs lie below the folder ``runs``.

    One after another the task that fills most empty cells a second, with what those before it have
    trained and filled. Those of which no time is known come after those of which one is.
    """
    seconds = cache(lambda task, train: times.cost(task, train).seconds)
    fills = _fillings(paper, layouts, records)
    cells = {task: _filled(task, fills) for task in tasks}
    left, first = untrained_runs(tasks, runs), list[Task]()

    def worth(task: Task) -> tuple[bool, float]:
        needed = seconds(task, frozenset[Recipe](left.intersection(task.plan.runs)))
        cells_of_it = len(cells[task])
        return (False, cells_of_it) if needed is None else (True, cells_of_it / max(needed, 1.0))

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
) -> dict[Need, set[PrintedCell]]:
    """The empty cells that each need would fill: by the size of batch that is shown, if any is."""
    judge = Judge(paper, records, seeds=1)
    found: dict[Need, set[PrintedCell]] = {}
    for cell in printed_cells(paper, layouts):
        _, dataset, method, metric = cell
        if judge.measured(dataset, method, metric) is None:
            shown = {recipe_of(paper, record) for record in judge.shown(dataset, method)}
            for plan in shown or wanted(paper, dataset, method):
                if plan is not None:
                    found.setdefault((plan, metric.lower()), set()).add(cell)
    return found


def _filled(task: Task, fills: dict[Need, set[PrintedCell]]) -> frozenset[PrintedCell]:
    plan = with_run(task.plan, seed=0)
    every = (fills.get((plan, metric), set()) for metric in ("nat", *task.attacks))
    return frozenset[PrintedCell]().union(*every)
