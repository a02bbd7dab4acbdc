"""What is missing: the tasks that fill cells and curves for which there is no record yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from upright.paper.cells import is_whole, recipe_of, with_reported, with_run
from upright.paper.needs import Need
from upright.paper.paper import Paper
from upright.record_files import RecordFolder
from upright.records import Record
from upright.train import Plan, TrainingPrecision
from upright.workers.engine import Engine, Failure
from upright.workers.task import Task

__all__ = ["make_missing", "missing_tasks", "undone"]


def missing_tasks(
    paper: Paper,
    needs: Iterable[Need],
    records: Iterable[Record],
    *,
    seeds: int,
    precision: TrainingPrecision = "float32",
    compiled: bool = False,
) -> tuple[Task, ...]:
    """One task for each recipe and seed that lacks a metric: all methods' first seed comes first.

    Seeds count from 0. ``compiled`` says how networks are evaluated, which is no other recipe.
    """
    attacks: dict[Plan, list[str]] = {}
    for recipe, metric in dict.fromkeys(needs):
        names = attacks.setdefault(recipe, [])
        if metric != "nat":
            names.append(metric.lower())
    tasks = (
        Task(
            plan=with_run(recipe, seed=seed, precision=precision),
            attacks=tuple(names),
            question=replace(paper.question, compile=compiled),
        )
        for seed in range(seeds)
        for recipe, names in attacks.items()
    )
    return undone(paper, tasks, records)


def undone(paper: Paper, tasks: Iterable[Task], records: Iterable[Record]) -> tuple[Task, ...]:
    """What is left of tasks: those that lack a metric, with the attacks that are not recorded.

    What was measured with as many images of a run's own data counts, whatever the precision: a
    seed that was run in another one is not run again.
    """
    recorded = _recorded(paper, records)
    left = []
    for task in tasks:
        run = (with_run(task.plan, seed=0), task.plan.main.seed, task.test_images)
        there = recorded.get(run, set())
        if not {"nat", *task.attacks} <= there:
            lacking = tuple(name for name in task.attacks if name not in there)
            left.append(replace(task, attacks=lacking))
    return tuple(left)


def _recorded(paper: Paper, records: Iterable[Record]) -> dict[tuple[Plan, int, object], set[str]]:
    """The metrics that are recorded, by recipe, seed and number of images, None for all."""
    found: dict[tuple[Plan, int, object], set[str]] = {}
    for record in records:
        recipe, limit = recipe_of(paper, record), record.evaluation.get("limit")
        whole = recipe is not None and is_whole(record)
        if recipe is not None and (whole or limit is not None):
            run = (recipe, record.seed, None if whole else limit)
            found.setdefault(run, set()).update(record.measured)
    return found


def make_missing(
    paper: Paper,
    tasks: Sequence[Task],
    engine: Engine,
    results: RecordFolder,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Failure, ...]:
    """Let an engine perform what is not recorded yet; each record is kept once, as it comes.

    A record that cannot be kept is told in full, and counts as a failure; the others go on.
    """
    todo = undone(paper, tasks, results.read())
    unkept: list[Failure] = []

    def keep(record: Record) -> None:
        found = ", ".join(f"{name} {100 * value:.2f} %" for name, value in record.measured.items())
        about = f"{record.method} on {record.dataset}, seed {record.seed}: {found}"
        try:
            again = "" if results.add(with_reported(paper, record)) else " (was recorded before)"
        except OSError as error:
            its = [task for task in todo if _is_of(task, record)]
            if not its:
                raise
            say(f"{about} (not recorded)")
            unkept.append(Failure(its[0], str(error)))
        else:
            say(about + again)

    return (*engine.run(todo, keep), *unkept)


def _is_of(task: Task, record: Record) -> bool:
    return task.plan.hash == record.recipe_hash and task.plan.main.seed == record.seed
