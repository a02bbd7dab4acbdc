"""What the figures draw, as data: from those of the records alone that can be compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from upright.objective import Objective, known_objective
from upright.records import Record
from upright.report.comparable import comparable_times, setting_in_words
from upright.report.compare import estimate, natural_beside
from upright.report.model import Estimate

__all__ = ["LambdaPoint", "RuntimePoint", "lambda_curve", "lambda_point", "runtime_points"]


@dataclass(frozen=True, kw_only=True)
class RuntimePoint:
    """How long a method trained, and how accurate it is then."""

    dataset: str
    method: str
    setting: str
    """In words: the network, the schedule, how many images were evaluated."""
    hours: float
    """Of training, on ``hardware``: mean over seeds. Runs that trained side by side shared it."""
    hardware: str
    natural: Estimate
    grid: Estimate
    """grid-775."""
    family: str
    """Methods that differ in the number of random tries only share it: points to connect."""
    tries: int | None
    """k of Wo-k, 1 for ``rnd`` and ``std*``; None where nothing random is tried."""


@dataclass(frozen=True, kw_only=True)
class LambdaPoint:
    """Accuracies for one weight of the penalty."""

    weight: float
    """λ."""
    natural: Estimate
    grid: Estimate
    """grid-775, or what else decides."""


def runtime_points(records: Iterable[Record]) -> tuple[RuntimePoint, ...]:
    """One point for each data set and method, from the records whose times can be compared.

    Data sets come by name, their methods from the highest grid accuracy down.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in comparable_times(records):
        groups.setdefault((record.dataset, record.method), []).append(record)
    points = [_runtime_point(some) for some in groups.values()]
    return tuple(sorted(points, key=lambda point: (point.dataset, -point.grid.mean)))


def lambda_curve(
    records: Iterable[Record], *, dataset: str, method: Objective
) -> tuple[LambdaPoint, ...]:
    """A method's accuracies against λ, in the order of λ, which goes above zero.

    The records must be ``comparable``.
    """
    groups: dict[float, list[Record]] = {}
    for record in records:
        found = known_objective(record.method) if record.dataset == dataset else None
        if found is not None and _is_on_curve(found, method):
            groups.setdefault(found.weight, []).append(record)
    points = [lambda_point(weight, groups[weight]) for weight in sorted(groups)]
    return tuple(point for point in points if point is not None)


def _is_on_curve(objective: Objective, method: Objective) -> bool:
    """Whether it is the method but for λ, and has a λ that a logarithmic axis shows."""
    if objective.penalty is None or objective.weight == 0:
        return False
    return objective.with_usual_weight() == method.with_usual_weight()


def _runtime_point(records: list[Record]) -> RuntimePoint:
    natural, grid = natural_beside(records, "grid-775"), estimate(records, "grid-775")
    assert natural is not None  # or it would not be comparable
    assert grid is not None
    first = records[0]
    times = {record.seed: record.train_seconds for record in records}
    seconds = [each for each in times.values() if each is not None]
    family, tries = _family(first.method)
    return RuntimePoint(
        dataset=first.dataset,
        method=first.method,
        setting=setting_in_words(first),
        hours=statistics.fmean(seconds) / 3600,
        hardware=first.trained_on,
        natural=natural,
        grid=grid,
        family=family,
        tries=tries,
    )


def _family(method: str) -> tuple[str, int | None]:
    """``KL(rob, Wo-10)`` is one of ``KL(rob, Wo-k)``, and so is ``KL(rob, rnd)``."""
    objective = known_objective(method)
    if objective is None or objective.tries is None:
        return method, None
    return objective.text(lambda _: "Wo-k"), objective.tries


def lambda_point(
    weight: float, records: Sequence[Record], metric: str = "grid-775"
) -> LambdaPoint | None:
    """Average the records of one λ over seeds; None where they lack an accuracy."""
    natural, grid = natural_beside(records, metric), estimate(records, metric)
    if natural is None or grid is None:
        return None
    return LambdaPoint(weight=weight, natural=natural, grid=grid)
