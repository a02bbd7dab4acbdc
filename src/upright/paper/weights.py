"""Which λ a method has: what was measured of each, and which one that calls for.

The paper chose λ by accuracy on the test set and does not print it. The same is done here, and
beside it what is chosen without the test set, by the images that runs held out of training. Both
choices follow one rule, ``chosen``. ``Paper.weights`` has what the first one gives, and a test
holds it to the records (``called_for``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from upright.objective import Objective
from upright.paper.cells import by_recipe
from upright.paper.needs import penalised
from upright.paper.numbers import reported
from upright.paper.paper import Paper
from upright.records import Record
from upright.report.data import LambdaPoint, lambda_point
from upright.report.weights import WeightChoice
from upright.train import Recipe

__all__ = ["called_for", "chosen", "weight_choices"]


def chosen(points: Sequence[LambdaPoint], usual: float) -> float | None:
    """Choose λ: the usual one, unless another has the higher decisive accuracy.

    To replace it, another needs at least as many seeds; of several that could, those with the most
    seeds count, and of these the highest mean: one run does not replace a mean of three. None where
    the usual one was not measured, since there is nothing to be above.
    """
    default = next((each for each in points if each.weight == usual), None)
    if default is None:
        return None
    better = (
        each
        for each in points
        if each.grid.n >= default.grid.n and each.grid.mean > default.grid.mean
    )
    return max(better, key=lambda each: (each.grid.n, each.grid.mean), default=default).weight


def called_for(paper: Paper, records: Iterable[Record]) -> dict[tuple[str, str], float]:
    """Give λ by data set and objective, where records call for another than the default.

    Of the test set's, it is what ``Paper.weights`` has to be.
    """
    curves, found = _Curves(paper, records), {}
    for dataset, method in penalised(paper, paper.layouts):
        objective = paper.method(method).objective.canonical()
        best = chosen(curves.of(dataset, method), objective.weight)
        if best is not None and best != objective.weight:
            found[dataset, str(objective)] = best
    return found


def weight_choices(
    paper: Paper, tested: Iterable[Record], held_out: Iterable[Record]
) -> tuple[WeightChoice, ...]:
    """Give the choice for each method with a penalty of which anything was measured.

    Data sets and methods come in the order of the paper.
    """
    curves = _Curves(paper, tested), _Curves(paper.on_held_out, held_out)
    cells = penalised(paper, paper.layouts)
    ordered = sorted(cells, key=lambda cell: list(paper.datasets).index(cell[0]))
    choices = (_choice(paper, *cell, *curves) for cell in ordered)
    return tuple(each for each in choices if each.tested or each.held_out)


class _Curves:
    """What was measured for each λ, of records that are looked through once."""

    def __init__(self, paper: Paper, records: Iterable[Record]) -> None:
        self._paper = paper
        self._points: dict[Recipe, list[LambdaPoint]] = {}
        for plan, some in by_recipe(paper, records).items():
            if not isinstance(plan, Recipe) or not isinstance(plan.objective, Objective):
                continue
            point = lambda_point(plan.objective.weight, some, paper.decisive)
            if plan.objective.penalty is not None and point is not None:
                usual = replace(plan, objective=plan.objective.with_usual_weight())
                self._points.setdefault(usual, []).append(point)

    def of(self, dataset: str, method: str) -> tuple[LambdaPoint, ...]:
        """Give a method's points, in the order of λ."""
        asked = self._paper.method(method)
        usual = asked.objective.canonical().with_usual_weight()
        recipe = self._paper.recipe(dataset, usual, asked.model)
        return tuple(sorted(self._points.get(recipe, ()), key=lambda each: each.weight))


def _choice(
    paper: Paper, dataset: str, method: str, on_test: _Curves, apart: _Curves
) -> WeightChoice:
    usual = paper.method(method).objective.weight
    tested, held_out = on_test.of(dataset, method), apart.of(dataset, method)
    return WeightChoice(
        dataset=paper.datasets[dataset],
        method=method,
        tested=tested,
        held_out=held_out,
        by_test=chosen(tested, usual),
        by_held_out=chosen(held_out, usual),
        natural=reported(paper, dataset, method, "nat"),
        grid=reported(paper, dataset, method, paper.decisive),
    )
