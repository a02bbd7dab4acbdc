"""Training time against grid accuracy (the paper's figure of run times)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from upright.objective import known_objective
from upright.report.data import RuntimePoint
from upright.report.figures.draw import Drawing, look, styled

__all__ = ["draw_runtime", "time_unit"]


@styled
def draw_runtime(points: Sequence[RuntimePoint], dataset: str) -> Drawing | None:
    """Draw all methods of a data set; those that differ in the number of tries are connected."""
    here = _without_variants([point for point in points if point.dataset == dataset])
    if len(here) < 2:
        return None
    unit, hours = time_unit(max(point.hours for point in here))
    drawing = Figure(figsize=(6.8, 3.8), layout="constrained")
    axes = drawing.subplots()
    for number, family in enumerate(dict.fromkeys(point.family for point in here)):
        members = sorted((p for p in here if p.family == family), key=lambda p: p.tries or 0)
        axes.errorbar(
            [point.hours / hours for point in members],
            [100 * point.grid.mean for point in members],
            [100 * (point.grid.stderr or 0) for point in members],
            label=family if len(members) > 1 else members[0].method,
            color=look(number).colour,
            marker=look(number).marker,
        )
    axes.set_xlabel(f"training time in {unit}")
    axes.set_ylabel("grid-775 accuracy in %")
    axes.set_xlim(left=0)
    drawing.legend(loc="outside right upper")
    return Drawing(
        f"runtime-{dataset}",
        f"Training time against grid accuracy on {dataset}",
        "Mean over seeds, with the standard error where there are several. Methods that differ in "
        "the number of random tries k alone are connected. λ is the default where a method was "
        "trained with it. Runs that trained side by side on one card have equal parts of its time "
        "each, whatever their method would take by itself. "
        f"Setting: {here[0].setting}, on {here[0].hardware}.",
        drawing,
    )


def _without_variants(points: list[RuntimePoint]) -> list[RuntimePoint]:
    """Leave out other λ of a method that was trained with its usual one: they have a figure."""
    methods = {point.method for point in points}
    usual = {method: _usual(method) for method in methods}
    return [
        point
        for point in points
        if usual[point.method] == point.method or usual[point.method] not in methods
    ]


def _usual(method: str) -> str:
    """The method with its usual λ, where its name is an objective's."""
    objective = known_objective(method)
    return method if objective is None else str(objective.with_usual_weight())


def time_unit(hours: float) -> tuple[str, float]:
    """Give the unit in which times up to so many hours are easy to read, and its hours."""
    for name, unit in (("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= 1.5 * unit:
            return name, unit
    return "seconds", 1 / 3600
