"""Which runs fill which cell of a paper's tables.

A record fills a cell when all of this holds:

- **The data** are the cell's whole test set, known by its digest, and the run was trained on the
  same data set by name.
- **The recipe** is the paper's (``Paper.recipe``), in every field but ``seed`` and ``precision``.
  A shorter schedule never fills a cell.
- **λ** is the notation's default, unless ``Paper.weights`` names another. Runs with another λ
  belong to the curves.
- **Batch**: a method without a penalty may have been trained with several sizes of batch
  (``Paper.batches``), of which the better is reported. So all sizes fill its cells, and the one
  with the higher decisive accuracy is shown, for all metrics (``judge.py``). Networks of other
  kinds, which are trained without a penalty, have the same sizes.
- **The evaluation** is asked what the paper asks (``Paper.question``): poses, fill, resampling and
  canvas; of the metric's name in the record. Its precision, whether the network was compiled, and
  the seed of its draws do not matter; but weights that were rounded for the zoo are no longer what
  the recipe gives.
- **Two networks together** are the classifier, of any of the sizes of batch, behind a LocNet of the
  usual one, both of one seed. The attack has the LocNet's fill: it was trained to look at nothing
  else. A record of a pair fills no cell of its classifier, nor the other way round.
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
from typing import Any

from upright.data.known import KNOWN
from upright.data.registry import count_held_out
from upright.evaluation.question import LATER
from upright.paper.numbers import reported
from upright.paper.paper import Method, Paper
from upright.records import Record
from upright.train import Pair, Plan, Recipe, TrainingPrecision
from upright.train.any_plan import plan_from_json
from upright.warp import Fill

__all__ = [
    "by_recipe",
    "chosen_weight",
    "evaluated_as_in_the_paper",
    "is_whole",
    "paper_method",
    "recipe_of",
    "wanted",
    "with_reported",
    "with_run",
]


@cache
def wanted(paper: Paper, dataset: str, method: str) -> tuple[Plan, ...]:
    """Say what fills a method's cells on a data set; the better of what is given is reported.

    Seed 0, float32. The method is as the paper spells it.
    """
    asked = paper.method(method)
    alone = _classifiers(paper, dataset, asked)
    if asked.locnet is None:
        return alone
    first = paper.recipe(dataset, asked.locnet)
    return tuple(Pair(locnet=first, classifier=each, oracle=asked.oracle) for each in alone)


def _classifiers(paper: Paper, dataset: str, method: Method) -> tuple[Recipe, ...]:
    objective, weight = method.objective.canonical(), _chosen(paper, dataset, method)
    if weight is not None:
        objective = replace(objective, weight=weight)
    recipe = paper.recipe(dataset, objective, method.model)
    if objective.penalty is not None or not paper.batches:
        return (recipe,)
    return tuple(replace(recipe, batch=batch) for batch in paper.batches)


@cache
def chosen_weight(paper: Paper, dataset: str, method: str) -> float | None:
    """The λ that a method of the paper has in place of the default; None where it is the default.

    Networks of other kinds were trained without a penalty.
    """
    return _chosen(paper, dataset, paper.method(method))


def _chosen(paper: Paper, dataset: str, method: Method) -> float | None:
    if method.objective.penalty is None:
        return None
    return paper.weights.get((dataset, str(method.objective.canonical())))


def with_run(recipe: Plan, *, seed: int, precision: TrainingPrecision = "float32") -> Plan:
    """Set what may differ between runs that fill the same cell."""
    return recipe.with_runs(
        [
            replace(run, objective=run.objective.canonical(), seed=seed, precision=precision)
            for run in recipe.runs
        ]
    )


def paper_method(paper: Paper, recipe: Plan) -> str | None:
    """The paper's name for a recipe, seed and precision aside; None where it has no such run."""
    return _methods(paper).get(with_run(recipe, seed=0))


def with_reported(paper: Paper, record: Record, *, also_called: str | None = None) -> Record:
    """Give a record with what the paper has for its cells, where it fills any.

    ``also_called`` is another name of its data: of a file, under which a run knows a known set.
    A paper's numbers are not of images that runs of ours held out.
    """
    if record.evaluation.get("split") == "held-out":
        return record
    # Weights that were rounded for the zoo fill no cell; the paper's number still stands beside.
    asked = {name: value for name, value in record.evaluation.items() if name != "weights"}
    plain = replace(record, evaluation=asked)
    # A record of today says which variant of a known set it is of, where it is of all images.
    whole = record.data_variant is not None if record.dataset in KNOWN else is_whole(record)
    recipe = recipe_of(paper, plain, also_called) if whole else None
    method = None if recipe is None else paper_method(paper, recipe)
    if method is None:
        return record
    found = {metric: reported(paper, record.dataset, method, metric) for metric in record.measured}
    beside = {metric: value for metric, value in found.items() if value is not None}
    return replace(record, reported=beside)


@cache
def _methods(paper: Paper) -> dict[Plan, str]:
    """The first name that the paper has for each of its recipes."""
    named: dict[Plan, str] = {}
    for layout in paper.layouts:
        for dataset, method in product(layout.datasets, layout.methods):
            for recipe in wanted(paper, dataset, method):
                named.setdefault(recipe, method)
    return named


def evaluated_as_in_the_paper(
    paper: Paper, evaluation: Mapping[str, Any], fill: Fill | None = None
) -> bool:
    """Whether poses, warp, split and what is right are the paper's, and the weights the run's.

    The whole set is known by its digest. A LocNet's ``fill`` takes the place of the paper's.
    """
    asked = _asked(paper) if fill is None else _asked(paper) | {"fill": fill}
    others = {"weights", *LATER} - {"compile"} - asked.keys()
    return evaluation.items() >= asked.items() and not others & evaluation.keys()


@cache
def _asked(paper: Paper) -> dict[str, Any]:
    """What the evaluation of a record says of the paper's question, where it is the same."""
    names = {"split", "space", "fill", "interpolation", "canvas", *LATER}
    return {name: value for name, value in paper.question.for_record().items() if name in names}


def by_recipe(paper: Paper, records: Iterable[Record]) -> dict[Plan, tuple[Record, ...]]:
    """Records that may fill a cell or a point of a curve, by recipe, seed and precision aside."""
    found: dict[Plan, list[Record]] = {}
    for record in records:
        recipe = recipe_of(paper, record)
        if recipe is not None and is_whole(record):
            found.setdefault(recipe, []).append(record)
    return {recipe: tuple(some) for recipe, some in found.items()}


def recipe_of(paper: Paper, record: Record, also_called: str | None = None) -> Plan | None:
    """The recipe of which a record tells, or the pair of them, seed and precision aside.

    None where it was evaluated unlike in the paper, or on other data than it was trained on.
    """
    recipe = _recipe(json.dumps(record.recipe, sort_keys=True))
    names = set() if recipe is None else {run.data for run in recipe.runs}
    if recipe is None or not names <= {record.dataset, also_called}:
        return None
    if also_called in names:
        recipe = recipe.changed(data=record.dataset)
    alike = evaluated_as_in_the_paper(paper, record.evaluation, recipe.locnet_fill)
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
    return with_run(recipe, seed=0) if recipe.seeds_fit else None


def is_whole(record: Record) -> bool:
    """Whether all images of a set were evaluated: a known one is told by its digest.

    The first records do not say which variant they are of, and are in the usual order. Of held-out
    images no digest is known: they are counted.
    """
    known = KNOWN.get(record.dataset)
    unlimited = all(record.evaluation.get(name) is None for name in ("limit", "sample"))
    if known is None:
        return unlimited
    if record.evaluation.get("split") == "held-out":
        return unlimited and record.images == count_held_out(known.counts["train"])
    digests = record.data_digest.items()
    usual = any(digests <= variant.digests.items() for variant in known.variants)
    return record.data_variant is not None or (bool(digests) and usual)
