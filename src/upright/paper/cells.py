"""Which runs fill which cell of the paper's tables, and which curve of its figures.

A record fills a cell when all of this holds:

- **The data** are the cell's whole test set, known by its digest, and the run was trained on the
  same data set by name.
- **The recipe** is the paper's, in every field but ``seed`` and ``precision``: 80,000 steps, or
  120,000 on CIFAR-100, 64 unique images a step, learning rate, decay, flips and poses as printed.
  A shorter schedule never fills a cell.
- **λ** is not printed in the paper, which chose it by grid accuracy on the test set. It is the
  notation's default, 8 for KL and 1 for l2, unless ``CHOSEN`` names another: one with the higher
  grid-775 accuracy over at least as many seeds. Runs with another λ belong to the curves.
- **Batch**: ``std``, ``std*`` and ``AT`` were also trained with 128 images a step, and the paper
  reports the better. So both sizes fill their cells, and the one with the higher grid-775 accuracy
  is shown, for all metrics. Networks other than the ResNet-32 are trained by ``std`` and ``std*``,
  and have the same two sizes.
- **The evaluation** has the paper's poses, black fill, bilinear resampling and no canvas; of the
  metric's name in the record. Its precision and the seed of its draws do not matter; but weights
  that were rounded for the zoo are no longer what the recipe gives.
- **Two networks together** (STN+) are the std* classifier, of either batch size, behind a LocNet of
  64 images a step: (c) ``LocNet(black)``, (r) ``LocNet(reflection)``, both of one seed. The attack
  has the LocNet's fill: it was trained to look at nothing else. Naive is the defence, trick the
  oracle. A record of a pair fills no cell of its classifier, nor the other way round.
- **One draw is one method**: Wo-1 is ``rnd``; with ``rnd``, ALP is L2 and KL-C is KL, because there
  is nothing to search for.

Each seed counts once, by its newest record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product
from typing import Any, Literal

from upright.data.known import KNOWN
from upright.evaluation.question import LATER, Question
from upright.paper.layout import LAYOUTS, PAPER_NAMES
from upright.paper.method import Method
from upright.paper.reported import paper_rows, reported
from upright.records import Record, Reported
from upright.train import Pair, Plan, Recipe
from upright.train.pair import plan_from_json
from upright.warp import Fill

__all__ = [
    "CHOSEN",
    "STEPS",
    "by_recipe",
    "chosen_weight",
    "evaluated_as_in_the_paper",
    "is_whole",
    "misprint_of",
    "paper_method",
    "printed",
    "recipe_of",
    "wanted",
    "with_reported",
    "with_run",
]

STEPS = {"svhn": 80_000, "cifar10": 80_000, "cifar100": 120_000}

CHOSEN = {
    ("cifar10", "KL(nat, Wo-10)"): 4.0,
    ("cifar10", "ALP(rob, S-PGD)"): 4.0,
    ("cifar100", "ALP(mix, Wo-10)"): 0.25,
}
"""λ other than the default, by data set and objective: where the records show that it has the
higher grid-775 accuracy over at least as many seeds. One run does not replace a mean of three."""

_EVALUATION = {
    name: value
    for name, value in Question().for_record().items()
    if name in ("split", "space", "interpolation", "canvas")
}


@cache
def wanted(dataset: str, method: str) -> tuple[Plan, ...]:
    """Say what fills a method's cells on ``cifar10``, ``cifar100`` or ``svhn``.

    The better of what is given is reported; seed 0, float32. The method is as the paper spells it.
    """
    asked = Method.named(method)
    if asked.locnet is not None:
        first = Recipe(objective=asked.locnet, data=dataset, steps=STEPS[dataset])
        return tuple(
            Pair(locnet=first, classifier=each.main, oracle=asked.oracle)
            for each in wanted(dataset, str(asked.objective))
        )
    objective, weight = asked.objective.canonical(), chosen_weight(dataset, method)
    if weight is not None:
        objective = replace(objective, weight=weight)
    recipe = Recipe(objective=objective, data=dataset, model=asked.model, steps=STEPS[dataset])
    has_penalty = objective.penalty is not None
    return (recipe,) if has_penalty else (recipe, replace(recipe, batch=128))


def chosen_weight(dataset: str, method: str) -> float | None:
    """The λ that a method of the paper has in place of the default; None where it is the default.

    Networks of other kinds were trained without a penalty.
    """
    objective = Method.named(method).objective
    if objective.penalty is None:
        return None
    return CHOSEN.get((dataset, str(objective.canonical())))


def with_run(
    recipe: Plan, *, seed: int, precision: Literal["float32", "bfloat16"] = "float32"
) -> Plan:
    """Set what may differ between runs that fill the same cell."""
    return recipe.with_runs(
        [
            replace(run, objective=run.objective.canonical(), seed=seed, precision=precision)
            for run in recipe.runs
        ]
    )


def paper_method(recipe: Plan) -> str | None:
    """The paper's name for a recipe, seed and precision aside; None where it has no such run."""
    return _methods().get(with_run(recipe, seed=0))


def with_reported(record: Record, *, also_called: str | None = None) -> Record:
    """Give a record with what the paper has for its cells, where it fills any.

    ``also_called`` is another name of its data: of a file, under which a run knows a known set.
    """
    # Weights that were rounded for the zoo fill no cell; the paper's number still stands beside.
    asked = {name: value for name, value in record.evaluation.items() if name != "weights"}
    plain = replace(record, evaluation=asked)
    recipe = None if record.data_variant is None else recipe_of(plain, also_called)
    method = None if recipe is None else paper_method(recipe)
    if method is None:
        return record
    found = {metric: reported(record.dataset, method, metric) for metric in record.measured}
    beside = {metric: value for metric, value in found.items() if value is not None}
    return replace(record, reported=beside)


@cache
def _methods() -> dict[Plan, str]:
    """The first name that the paper has for each of its recipes."""
    named: dict[Plan, str] = {}
    for layout in LAYOUTS:
        for dataset, method in product(layout.datasets, layout.methods):
            for recipe in wanted(dataset, method):
                named.setdefault(recipe, method)
    return named


def evaluated_as_in_the_paper(evaluation: Mapping[str, Any], fill: Fill = "black") -> bool:
    """Whether poses, warp, split and what is right are the paper's, and the weights the run's.

    The whole set is known by its digest.
    """
    asked = _EVALUATION | {"fill": fill}
    return evaluation.items() >= asked.items() and not {"weights", *LATER} & evaluation.keys()


def by_recipe(records: Iterable[Record]) -> dict[Plan, tuple[Record, ...]]:
    """Records that may fill a cell or a point of a curve, by recipe, seed and precision aside."""
    found: dict[Plan, list[Record]] = {}
    for record in records:
        recipe = recipe_of(record)
        if recipe is not None and is_whole(record):
            found.setdefault(recipe, []).append(record)
    return {recipe: tuple(some) for recipe, some in found.items()}


def recipe_of(record: Record, also_called: str | None = None) -> Plan | None:
    """The recipe of which a record tells, or the pair of them, seed and precision aside.

    None where it was evaluated unlike in the paper, or on other data than it was trained on.
    """
    recipe = _recipe(json.dumps(record.recipe, sort_keys=True))
    names = set() if recipe is None else {run.data for run in recipe.runs}
    if recipe is None or not names <= {record.dataset, also_called}:
        return None
    if also_called in names:
        recipe = recipe.changed(data=record.dataset)
    alike = evaluated_as_in_the_paper(record.evaluation, recipe.attack_fill)
    return recipe if alike else None


@lru_cache(maxsize=4096)
def _recipe(text: str) -> Plan | None:
    """A record's recipe, seed and precision aside; None for one of another version of this program.

    None for a pair of two seeds, too. A recipe's checks take a millisecond, and a table looks at
    every record.
    """
    try:
        recipe = plan_from_json(json.loads(text))
    except ValueError:
        return None
    one_seed = len({run.seed for run in recipe.runs}) == 1
    return with_run(recipe, seed=0) if one_seed else None


def is_whole(record: Record) -> bool:
    """Whether all images of a set were evaluated: a known one is told by its digest.

    The first records do not say which variant they are of, and are in the usual order.
    """
    known = KNOWN.get(record.dataset)
    if known is None:
        return record.evaluation.get("limit") is None
    digests = record.data_digest.items()
    usual = any(digests <= variant.digests.items() for variant in known.variants)
    return record.data_variant is not None or (bool(digests) and usual)


def printed(table: str, dataset: str, method: str, metric: str) -> Reported | None:
    """The number that a table prints, None for a dash.

    The main text has no standard errors and refers to the appendix for them; they come from there.
    """
    value = _printed().get((table, PAPER_NAMES[dataset], method, metric))
    if value is None or value.stderr is not None:
        return value
    elsewhere = reported(dataset, method, metric)
    return value if elsewhere is None else replace(value, stderr=elsewhere.stderr)


def misprint_of(table: str, dataset: str, method: str) -> str:
    """What is wrong with numbers that the paper printed by mistake; empty where nothing is."""
    return _misprints().get((table, PAPER_NAMES[dataset], method), "")


@cache
def _printed() -> dict[tuple[str, str, str, str], Reported]:
    return {
        (row.value.table, row.dataset, row.method, row.metric): row.value for row in paper_rows()
    }


@cache
def _misprints() -> dict[tuple[str, str, str], str]:
    return {(row.value.table, row.dataset, row.method): row.misprint for row in paper_rows()}
