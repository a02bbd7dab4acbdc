"""Runs that differ by their seed alone, taken together: one recipe, evaluated in one way.

A model that was not trained here is a method by itself.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from upright.later import LATER_IN_RECIPES, without_defaults
from upright.records import Record
from upright.report.asked import unlike_the_paper
from upright.report.comparable import in_each_recipe, whole_recipe
from upright.report.compare import estimate
from upright.report.model import Estimate
from upright.report.recipe_words import recipe_words

__all__ = ["MethodRuns", "group_runs", "told_apart"]


@dataclass(frozen=True, kw_only=True)
class MethodRuns:
    """The records of one recipe over its seeds, one of them for each."""

    dataset: str
    method: str
    model: str
    """The network."""
    asked: str
    """In what the evaluation differs from the paper's, in words; empty where in nothing."""
    steps: int | None
    """None, as the time, where nothing is known of the training."""
    measured: dict[str, Estimate]
    """Accuracies by metric."""
    train_seconds: float | None
    """The mean over the seeds."""
    hardware: str
    records: tuple[Record, ...]

    @property
    def setting(self) -> tuple[str, str, str]:
        """What two of them share whose numbers compare: the data, what was asked, the images."""
        images = json.dumps(self.records[0].images_digest, sort_keys=True)
        return self.dataset, self.asked, images

    @property
    def variant(self) -> str:
        """Which images go by the data set's name, where a record says so."""
        said = (record.data_variant for record in self.records)
        return next((variant for variant in said if variant is not None), "")


def group_runs(records: Iterable[Record]) -> tuple[MethodRuns, ...]:
    """Put records together that differ by their seeds alone; of these, the newest one counts.

    Data sets come in the order of the records; of each what was evaluated as in the paper, then
    what was asked something else, methods from the highest grid accuracy down. Oracles are left
    out: what they reach is nothing that a method could.
    """
    groups: dict[str, dict[tuple[int, ...], Record]] = {}
    for record in records:
        if record.is_oracle:
            continue
        asked = [
            in_each_recipe(whole_recipe(record), _without_seed),
            record.evaluation,
            record.images_digest,
            sorted(record.measured),
        ]
        group = groups.setdefault(json.dumps(asked, sort_keys=True), {})
        known = group.get(record.seeds)
        if known is None or known.finished_at <= record.finished_at:
            group[record.seeds] = record
    runs = [_together([group[seeds] for seeds in sorted(group)]) for group in groups.values()]
    order = list(dict.fromkeys(run.dataset for run in runs))
    return tuple(sorted(runs, key=lambda run: (order.index(run.dataset), run.asked, -_grid(run))))


def told_apart(runs: Sequence[MethodRuns]) -> tuple[str, ...]:
    """Say of each what its name does not: what most others of that name do not have.

    What a recipe adds to the paper's, such as a teacher, is told in any case, and never that it has
    none. Empty where the name says all.
    """
    alike: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for run in runs:
        alike.setdefault(_name(run), []).append(_settings(run.records[0]))
    return tuple(_apart(_settings(run.records[0]), alike[_name(run)]) for run in runs)


def _name(run: MethodRuns) -> tuple[str, ...]:
    return run.method, run.model, *run.setting


def _apart(settings: dict[str, str], others: list[dict[str, str]]) -> str:
    counts = {name: Counter(other.get(name) for other in others) for name in settings}
    return ", ".join(
        words
        for name, words in settings.items()
        if name in LATER_IN_RECIPES or not _is_usual(words, counts[name])
    )


def _is_usual(value: str, counts: Counter[str | None]) -> bool:
    """Whether a value is more common than any other: of two that are as common, both are told."""
    return all(count < counts[value] for other, count in counts.items() if other != value)


def _settings(record: Record) -> dict[str, str]:
    """What a recipe is made of, in words, of several networks together each thing once.

    A pair of networks stays whole.
    """
    recipe = whole_recipe(record)
    members = recipe.get("members")
    found = {"evaluation": [f"evaluated in {record.evaluation.get('precision')}"]}
    for each in members if isinstance(members, list) else [recipe]:
        for name, value in without_defaults(each, LATER_IN_RECIPES).items():
            if name not in _UNTOLD and not isinstance(value, dict):
                found.setdefault(name, []).append(recipe_words(name, value))
    return {name: " and ".join(dict.fromkeys(values)) for name, values in found.items()}


_UNTOLD = {
    *("seed", "families_digest", "model_digest", "objective_digest"),
    *("pretrained_digest", "teacher_digest"),
}


def _without_seed(recipe: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in recipe.items() if name != "seed"}


def _grid(run: MethodRuns) -> float:
    found = run.measured.get("grid-775")
    return 0.0 if found is None else found.mean


def _together(records: list[Record]) -> MethodRuns:
    first = records[0]
    seconds = [record.train_seconds for record in records if record.train_seconds is not None]
    estimates = {metric: estimate(records, metric) for metric in first.measured}
    return MethodRuns(
        dataset=first.dataset,
        method=first.method,
        model=first.model,
        asked=unlike_the_paper(first),
        steps=first.steps,
        measured={metric: found for metric, found in estimates.items() if found is not None},
        train_seconds=statistics.fmean(seconds) if seconds else None,
        hardware=first.trained_on,
        records=tuple(records),
    )
