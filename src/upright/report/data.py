"""What the figures draw, as data: from those of the records alone that can be compared."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from upright.records import Record
from upright.report.comparable import comparable_times, setting_in_words
from upright.report.compare import estimate
from upright.report.model import Estimate

__all__ = ["LambdaPoint", "RuntimePoint", "lambda_curve", "runtime_points", "split_weight"]

_DEFAULT_WEIGHTS = {"KL": 8.0, "KL-C": 8.0, "L2": 1.0, "ALP": 1.0}
"""λ of a method whose name has none; the notation's own, which a test compares."""


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
    """grid-775."""


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
    records: Iterable[Record], *, dataset: str, method: str
) -> tuple[LambdaPoint, ...]:
    """A method's accuracies against λ, in the order of λ; ``method`` is without a λ.

    The records must be ``comparable``.
    """
    groups: dict[float, list[Record]] = {}
    for record in records:
        name, weight = split_weight(record.method)
        if record.dataset == dataset and name == method and weight is not None:
            groups.setdefault(weight, []).append(record)
    points = [_lambda_point(weight, groups[weight]) for weight in sorted(groups)]
    return tuple(point for point in points if point is not None)


def split_weight(method: str) -> tuple[str, float | None]:
    """Part a method from its λ; λ is None where there is no penalty, or none that can be drawn.

    >>> split_weight("KL(rob, Wo-10; λ=4, direction=natural)")
    ('KL(rob, Wo-10; direction=natural)', 4.0)
    >>> split_weight("ALP(rob, S-PGD)")
    ('ALP(rob, S-PGD)', 1.0)
    """
    found = re.search(r"λ=([^,)]+)(?:, )?", method)
    name = method if found is None else method.replace(found.group(), "")
    name = name.replace("; )", ")").replace(", )", ")")
    if found is not None:
        return name, _weight(found.group(1))
    return name, _DEFAULT_WEIGHTS.get(method.partition("(")[0])


def _weight(text: str) -> float | None:
    """Of a name that may come from anywhere: None where it is no finite number above zero."""
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if 0 < weight < math.inf else None


def _runtime_point(records: list[Record]) -> RuntimePoint:
    natural, grid = estimate(records, "nat"), estimate(records, "grid-775")
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
    name = "AT(rob, rnd)" if method == "std*" else method
    found = re.search(r"\b(?:Wo-(\d{1,9})|rnd)\b", name)
    if found is None:
        return method, None
    return name.replace(found.group(), "Wo-k"), int(found.group(1) or 1)


def _lambda_point(weight: float, records: list[Record]) -> LambdaPoint | None:
    natural, grid = estimate(records, "nat"), estimate(records, "grid-775")
    if natural is None or grid is None:
        return None
    return LambdaPoint(weight=weight, natural=natural, grid=grid)
