"""How long missing runs would take, from the times in records.

A step of the same method, network and batch on the same hardware was measured if a record has it;
of several the fastest counts, because runs that trained side by side share their wall time. For a
method without a record, a straight line is laid through the steps of the others, against the passes
of a step: an image that is only searched with counts one, one that needs a gradient three. That is
an extrapolation, and is called one. Nothing is guessed for a network or hardware of which there is
no record.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from upright.attacks import CandidateSearch, parse_attack
from upright.data.known import KNOWN
from upright.objective import Objective
from upright.records import Record
from upright.reproduce.plan import by_recipe, same_run
from upright.reproduce.work import Task
from upright.train import Recipe

__all__ = ["Cost", "cost_of", "passes_of_a_step", "timed", "usual_hardware"]

_GRADIENT = 3
"""A forward and a backward pass take about as long as so many forward passes."""


@dataclass(frozen=True)
class Cost:
    """How long a task would take, in seconds; None where no record says anything about it."""

    train: float | None
    evaluate: float | None
    basis: Literal["measured", "extrapolated", "unknown"]

    @property
    def seconds(self) -> float | None:
        return None if self.train is None or self.evaluate is None else self.train + self.evaluate


def timed(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records that tell times: of recipes that this version knows, evaluated on all images."""
    return tuple(record for some in by_recipe(records).values() for record in some)


def usual_hardware(records: Iterable[Record], here: str) -> str | None:
    """The hardware to estimate for: this one, or the one that most records are from."""
    names = [record.hardware for record in records]
    return here if here in names or not names else statistics.mode(names)


def cost_of(
    task: Task, records: Iterable[Record], hardware: str | None, *, trained: bool = False
) -> Cost:
    """Estimate a task from ``timed`` records; one that is trained already is only evaluated."""
    model = task.recipe.model
    alike = [each for each in records if (each.hardware, each.model) == (hardware, model)]
    if not alike:
        return Cost(None, None, "unknown")
    step, measured = _seconds_a_step(task.recipe, alike)
    if trained:
        step, measured = 0.0, True
    evaluate, known = _evaluation_seconds(task, alike)
    basis: Literal["measured", "extrapolated"] = (
        "measured" if measured and known else "extrapolated"
    )
    return Cost(step * task.recipe.steps, evaluate, basis)


def passes_of_a_step(objective: str, batch: int) -> int:
    """Forward passes of a step, a backward pass counted as two; see ``Objective``'s table."""
    parsed = Objective.parse(objective)
    attack, targets = parsed.attack, len(parsed.targets)
    transformed = min(targets, 1) if parsed.single_try else targets
    training = _GRADIENT * (int(parsed.sees_originals) + transformed * parsed.draws)
    if attack is None or parsed.single_try:
        search = 0
    elif isinstance(attack, CandidateSearch):
        search = attack.passes_per_image
    else:
        search = _GRADIENT * targets * attack.passes_per_image
    return batch * (training + search * parsed.draws)


def _seconds_a_step(recipe: Recipe, records: Sequence[Record]) -> tuple[float, bool]:
    """Seconds of a step, and whether the very method was measured."""
    wanted = passes_of_a_step(recipe.objective, recipe.batch)
    kinds: dict[tuple[str, int], float] = {}
    for record in records:
        kind = (same_run(record.method), int(record.recipe["batch"]))
        seconds = record.train_seconds / record.steps
        kinds[kind] = min(seconds, kinds.get(kind, math.inf))
    same = (same_run(recipe.objective), recipe.batch)
    if same in kinds:
        return kinds[same], True
    passes = [passes_of_a_step(*kind) for kind in kinds]
    return _on_the_line(passes, list(kinds.values()), wanted), False


def _on_the_line(passes: Sequence[int], seconds: Sequence[float], wanted: int) -> float:
    """Lay a line through what was measured; through zero where all have the same passes."""
    if len(set(passes)) == 1:
        return statistics.fmean(seconds) * wanted / passes[0]
    slope, start = statistics.linear_regression(passes, seconds)
    return max(min(seconds), start + slope * wanted)


def _evaluation_seconds(task: Task, records: Sequence[Record]) -> tuple[float, bool]:
    """Seconds of the evaluation, and whether such an attack was measured."""
    images = task.test_images or KNOWN[task.recipe.data].counts["test"]
    attacks = set(task.attacks)
    same = [each for each in records if attacks <= set(each.measured)]
    rates = [
        record.evaluate_seconds / (record.images * _passes(record.measured))
        for record in same or records
    ]
    return statistics.median(rates) * images * _passes(attacks), bool(same)


def _passes(metrics: Iterable[str]) -> int:
    attacks = [parse_attack(name) for name in metrics if name != "nat"]
    return 1 + sum(attack.passes_per_image for attack in attacks)
