"""How long missing runs would take, from the times in records.

A step of the same method, network, batch and precision on the same hardware was measured if the
record of a run that trained alone has it. Runs side by side have equal parts of their wall time,
whatever their methods cost: what only they tell is an estimate, and is called shared, as is what
older records tell, which do not say who else trained. For a method without a record, a straight
line is laid through the steps of the others, alone where there are such, against the passes of a
step: an image that is only searched with counts one, one that needs a gradient three. That is an
extrapolation, and is called one. Nothing is guessed for a network, a precision or hardware of which
there is no record. What two networks together take is told from each alone: a LocNet trains like
another method, and an evaluation of two takes twice that of the classifier.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import torch

from upright.attacks import CandidateSearch, parse_attack
from upright.data.known import KNOWN, KnownSet
from upright.data.registry import count_held_out
from upright.evaluation import Question
from upright.measure.run import questions_of
from upright.objective import AnyObjective, LocNet, parse_objective
from upright.origin import hardware
from upright.paper.cells import by_recipe
from upright.paper.paper import Paper
from upright.records import Record
from upright.train import Recipe, TrainingPrecision
from upright.workers.task import Task

__all__ = ["Basis", "Cost", "Times", "cost_of", "passes_of_a_step", "timed", "usual_hardware"]

Basis = Literal["measured", "shared", "extrapolated", "unknown"]
"""What a time is known from, the most certain first."""

_GRADIENT = 3
"""A forward and a backward pass take about as long as so many forward passes."""


@dataclass(frozen=True)
class Cost:
    """How long a task would take, in seconds; None where no record says anything about it."""

    train: float | None
    evaluate: float | None
    basis: Basis
    """Of the less certain of both."""

    @property
    def seconds(self) -> float | None:
        return None if self.train is None or self.evaluate is None else self.train + self.evaluate


@dataclass(frozen=True)
class _Time:
    seconds: float | None
    basis: Basis


_UNKNOWN = _Time(None, "unknown")


def timed(paper: Paper, records: Iterable[Record]) -> tuple[Record, ...]:
    """The records that tell times: of recipes that this version knows, evaluated on all images.

    Those of several networks together, and of means, tell no network's.
    """
    found = by_recipe(paper, records).items()
    return tuple(record for plan, some in found if isinstance(plan, Recipe) for record in some)


@dataclass(frozen=True)
class Times:
    """What records tell of times on one kind of hardware."""

    records: tuple[Record, ...]
    hardware: str | None
    """None where nothing is known of any."""

    @staticmethod
    def of(paper: Paper, records: Iterable[Record], device: torch.device) -> Times:
        """Those of a device, or else of the hardware that trained most records."""
        known = timed(paper, records)
        return Times(known, usual_hardware(known, hardware(device)))

    @property
    def precision(self) -> TrainingPrecision | None:
        """In which most of its runs were trained; None where there are none."""
        its = [
            each.recipe["precision"] for each in self.records if each.trained_on == self.hardware
        ]
        return statistics.mode(its) if its else None

    def cost(self, task: Task, train: Iterable[Recipe]) -> Cost:
        """Estimate a task of which these runs are to be trained."""
        return cost_of(task, self.records, self.hardware, train=train)


def usual_hardware(records: Iterable[Record], here: str) -> str | None:
    """The hardware to estimate for: this one, or the one that trained most records."""
    names = [record.trained_on for record in records]
    return here if here in names or not names else statistics.mode(names)


def cost_of(
    task: Task,
    records: Sequence[Record],
    hardware: str | None,
    *,
    train: Iterable[Recipe] | None = None,
) -> Cost:
    """Estimate a task from ``timed`` records; ``train`` has those of its runs that are to be made.

    Without it, that is all of them.
    """
    runs = task.plan.runs if train is None else train
    training = [_training(run, records, hardware) for run in runs]
    evaluation = _evaluation(task, [each for each in records if each.hardware == hardware])
    seconds = [each.seconds for each in training if each.seconds is not None]
    basis = max((each.basis for each in (*training, evaluation)), key=get_args(Basis).index)
    known = len(seconds) == len(training)
    return Cost(sum(seconds) if known else None, evaluation.seconds, basis)


def passes_of_a_step(objective: AnyObjective, batch: int) -> int:
    """Forward passes of a step, a backward pass counted as two; see ``Objective``'s table."""
    if isinstance(objective, LocNet):
        return batch * _GRADIENT
    attack, targets = objective.attack, len(objective.targets)
    transformed = min(targets, 1) if objective.single_try else targets
    training = _GRADIENT * (int(objective.sees_originals) + transformed * objective.draws)
    if attack is None or objective.single_try:
        search = 0
    elif isinstance(attack, CandidateSearch):
        search = attack.passes_per_image
    elif not attack.climbs:
        search = targets * attack.passes_of_worst_pose
    else:
        search = _GRADIENT * targets * attack.passes_of_worst_pose
    return batch * (training + search * objective.draws)


def _training(recipe: Recipe, records: Iterable[Record], hardware: str | None) -> _Time:
    wanted = (recipe.model, recipe.precision, hardware)
    alike = [
        each
        for each in records
        if (each.model, each.recipe["precision"], each.trained_on) == wanted
    ]
    alone = _seconds_a_step(each for each in alike if each.beside == 1)
    every = _seconds_a_step(alike)
    kind = (_but_for_weight(recipe.objective), recipe.batch)
    if kind in alone:
        return _Time(recipe.steps * alone[kind], "measured")
    if kind in every:
        return _Time(recipe.steps * every[kind], "shared")
    if not every:
        return _UNKNOWN
    others = alone or every
    passes = [passes_of_a_step(*other) for other in others]
    step = _on_the_line(passes, list(others.values()), passes_of_a_step(*kind))
    return _Time(recipe.steps * step, "extrapolated")


def _seconds_a_step(records: Iterable[Record]) -> dict[tuple[AnyObjective, int], float]:
    """By method and batch, the median of all records."""
    found: dict[tuple[AnyObjective, int], list[float]] = {}
    for record in records:
        if record.steps and record.train_seconds is not None:
            kind = (_but_for_weight(parse_objective(record.method)), int(record.recipe["batch"]))
            found.setdefault(kind, []).append(record.train_seconds / record.steps)
    return {kind: statistics.median(seconds) for kind, seconds in found.items()}


def _but_for_weight(objective: AnyObjective) -> AnyObjective:
    """One for all objectives of which a step takes the same time."""
    one = objective.canonical()
    return one if isinstance(one, LocNet) else one.with_usual_weight()


def _on_the_line(passes: Sequence[int], seconds: Sequence[float], wanted: int) -> float:
    """Lay a line through what was measured; through zero where all have the same passes."""
    if len(set(passes)) == 1:
        return statistics.fmean(seconds) * wanted / passes[0]
    slope, start = statistics.linear_regression(passes, seconds)
    return max(min(seconds), start + slope * wanted)


def _evaluation(task: Task, records: Iterable[Record]) -> _Time:
    records = [each for each in records if each.model == task.plan.main.model]
    if not records:
        return _UNKNOWN
    networks, images = len(task.plan.runs), _images(task, records)
    if images is None:
        return _UNKNOWN
    seconds = 0.0
    basis: Basis = "measured" if networks == 1 else "extrapolated"
    for question in questions_of(task.plan, task.asked):
        same = [record for record in records if _has_measured(record, question)]
        basis = basis if same else "extrapolated"
        rates = [
            record.evaluate_seconds / (record.images * _passes(tuple(record.measured)))
            for record in same or records
        ]
        seconds += statistics.median(rates) * networks * images * question.passes_per_image
    return _Time(seconds, basis)


def _images(task: Task, records: Iterable[Record]) -> int | None:
    """How many are evaluated; None where neither the task nor a record of the same data says so."""
    name = task.plan.main.data
    if task.test_images is not None or name in KNOWN:
        return task.test_images or _all_images(KNOWN[name], task.question.split)
    return max((each.images for each in records if each.dataset == name), default=None)


def _all_images(known: KnownSet, split: str) -> int:
    held_out, test = count_held_out(known.counts["train"]), known.counts["test"]
    return held_out if split == "held-out" else test


def _has_measured(record: Record, question: Question) -> bool:
    asked = record.evaluation
    way = (asked.get("precision"), asked.get("compile", False))
    return set(question.attacks) <= set(record.measured) and way == (
        question.precision,
        question.compile,
    )


@cache
def _passes(metrics: tuple[str, ...]) -> int:
    attacks = [parse_attack(name) for name in metrics if name != "nat"]
    return 1 + sum(attack.passes_per_image for attack in attacks)
