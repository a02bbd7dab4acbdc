"""What the figures draw, as data: from records only.

The functions take the records that belong into one figure. To draw the paper's own, hand them
those that ``reproduce.paper_records`` lets through: a shorter schedule is not beside the point,
it is another point.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from upright.records import Record
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
    model: str
    batch: int
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
    """One point for each data set, method, network, batch size and hardware."""
    groups: dict[tuple[str, str, str, int, str], list[Record]] = {}
    for record in records:
        batch = int(record.recipe.get("batch", 0))
        key = (record.dataset, record.method, record.model, batch, record.hardware)
        groups.setdefault(key, []).append(record)
    points = [_runtime_point(key, some) for key, some in groups.items()]
    return tuple(point for point in points if point is not None)


def lambda_curve(
    records: Iterable[Record], *, dataset: str, method: str
) -> tuple[LambdaPoint, ...]:
    """A method's accuracies against λ, in the order of λ; ``method`` is without a λ."""
    groups: dict[float, list[Record]] = {}
    for record in records:
        name, weight = split_weight(record.method)
        if record.dataset == dataset and name == method and weight is not None:
            groups.setdefault(weight, []).append(record)
    points = [_lambda_point(weight, groups[weight]) for weight in sorted(groups)]
    return tuple(point for point in points if point is not None)


def split_weight(method: str) -> tuple[str, float | None]:
    """Part a method from its λ; λ is None where there is no penalty.

    >>> split_weight("KL(rob, Wo-10; λ=4, direction=natural)")
    ('KL(rob, Wo-10; direction=natural)', 4.0)
    >>> split_weight("ALP(rob, S-PGD)")
    ('ALP(rob, S-PGD)', 1.0)
    """
    found = re.search(r"λ=([^,)]+)(?:, )?", method)
    name = method if found is None else method.replace(found.group(), "")
    name = name.replace("; )", ")").replace(", )", ")")
    if found is not None:
        return name, float(found.group(1))
    return name, _DEFAULT_WEIGHTS.get(method.partition("(")[0])


def _runtime_point(
    key: tuple[str, str, str, int, str], records: list[Record]
) -> RuntimePoint | None:
    natural, grid = estimate(records, "nat"), estimate(records, "grid-775")
    if natural is None or grid is None:
        return None
    dataset, method, model, batch, hardware = key
    seconds = {record.seed: record.train_seconds for record in records}
    family, tries = _family(method)
    return RuntimePoint(
        dataset=dataset,
        method=method,
        model=model,
        batch=batch,
        hours=statistics.fmean(seconds.values()) / 3600,
        hardware=hardware,
        natural=natural,
        grid=grid,
        family=family,
        tries=tries,
    )


def _family(method: str) -> tuple[str, int | None]:
    """``KL(rob, Wo-10)`` is one of ``KL(rob, Wo-k)``, and so is ``KL(rob, rnd)``."""
    name = "AT(rob, rnd)" if method == "std*" else method
    found = re.search(r"\b(?:Wo-(\d+)|rnd)\b", name)
    if found is None:
        return method, None
    return name.replace(found.group(), "Wo-k"), int(found.group(1) or 1)


def _lambda_point(weight: float, records: list[Record]) -> LambdaPoint | None:
    natural, grid = estimate(records, "nat"), estimate(records, "grid-775")
    if natural is None or grid is None:
        return None
    return LambdaPoint(weight=weight, natural=natural, grid=grid)
