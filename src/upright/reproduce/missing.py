"""What is missing: the tasks that fill cells and curves for which there is no record yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from upright.records import Record
from upright.reproduce.layout import Layout
from upright.reproduce.plan import attack_of, by_recipe, printed, wanted, with_run
from upright.reproduce.work import Task
from upright.train import Recipe

__all__ = ["missing_tasks", "table_needs"]

Need = tuple[Recipe, str]
"""A recipe, of seed 0 and in float32, and a metric that it is measured by."""


def table_needs(layouts: Iterable[Layout], *, batches: Collection[int] = (64, 128)) -> list[Need]:
    """What the cells of tables need, in the order of the paper; not what cannot be made yet."""
    return list(dict.fromkeys(_needs(layouts, batches)))


def _needs(layouts: Iterable[Layout], batches: Collection[int]) -> Iterator[Need]:
    for layout in layouts:
        for dataset in layout.datasets:
            for method in layout.methods:
                wants = wanted(dataset, method)
                recipes = [each for each in wants.recipes if each.batch in batches]
                for metric in layout.metrics:
                    if not wants.lacks and printed(layout.name, dataset, method, metric):
                        yield from ((recipe, metric) for recipe in recipes)


def missing_tasks(
    needs: Iterable[Need],
    records: Iterable[Record],
    *,
    seeds: int,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> tuple[Task, ...]:
    """One task for each recipe and seed that lacks a metric: all methods' first seed comes first.

    Seeds count from 0. A seed that was run in another precision is not run again.
    """
    measured = _measured(records)
    tasks = []
    for seed in range(seeds):
        attacks: dict[Recipe, list[str]] = {}
        for recipe, metric in needs:
            name = attack_of(metric) or metric
            if name not in measured.get((recipe, seed), ()):
                attacks.setdefault(recipe, []).append(name)
        for recipe, names in attacks.items():
            run = with_run(recipe, seed=seed, precision=precision)
            tasks.append(Task(recipe=run, attacks=tuple(each for each in names if each != "nat")))
    return tuple(tasks)


def _measured(records: Iterable[Record]) -> Mapping[tuple[Recipe, int], set[str]]:
    found: dict[tuple[Recipe, int], set[str]] = {}
    for recipe, some in by_recipe(records).items():
        for record in some:
            found.setdefault((recipe, record.seed), set()).update(record.measured)
    return found
