"""Which runs tables and figures need, and by which metrics each is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import product

from upright.objective import Objective
from upright.paper.cells import wanted
from upright.paper.numbers import printed
from upright.paper.paper import Figure, Layout, Paper, spelled
from upright.train import Plan, Recipe

__all__ = [
    "Need",
    "PrintedCell",
    "figure_needs",
    "figure_recipes",
    "penalised",
    "printed_cells",
    "table_needs",
    "weight_needs",
]

Need = tuple[Plan, str]
"""A recipe or a pair of them, of seed 0 and in float32, and a metric that it is measured by."""
PrintedCell = tuple[str, str, str, str]
"""Table, data set, method and metric of a number that is printed."""


def table_needs(
    paper: Paper, layouts: Iterable[Layout], *, batches: Collection[int] = ()
) -> list[Need]:
    """What the cells of tables need, in the order of the paper; or some sizes of batch of it."""
    needs = dict.fromkeys(_needs(paper, layouts))
    return [need for need in needs if not batches or need[0].main.batch in batches]


def _needs(paper: Paper, layouts: Iterable[Layout]) -> Iterator[Need]:
    for _, dataset, method, metric in printed_cells(paper, layouts):
        yield from ((recipe, metric) for recipe in wanted(paper, dataset, method))


def printed_cells(paper: Paper, layouts: Iterable[Layout]) -> Iterator[PrintedCell]:
    """The numbers that are printed, in the order of the paper."""
    for layout in layouts:
        for dataset, method, metric in product(layout.datasets, layout.methods, layout.metrics):
            if printed(paper, layout.name, dataset, method, metric):
                yield layout.name, dataset, method, metric


def weight_needs(paper: Paper, layouts: Iterable[Layout], factors: Collection[float]) -> list[Need]:
    """What is needed to choose λ for the methods of tables: runs with so many times its default."""
    return [
        (_weighted(paper, dataset, method, factor), paper.decisive)
        for dataset, method in penalised(paper, layouts)
        for factor in factors
    ]


def penalised(paper: Paper, layouts: Iterable[Layout]) -> list[tuple[str, str]]:
    """Data sets and methods of tables that have a λ; of several names for one, the first."""
    names: dict[tuple[str, Objective], str] = {}
    for _, dataset, method, _ in printed_cells(paper, layouts):
        objective = paper.method(method).objective.canonical()
        if objective.penalty is not None:
            names.setdefault((dataset, objective), method)
    return [(dataset, name) for (dataset, _), name in names.items()]


def figure_needs(
    paper: Paper,
    figures: Iterable[str],
    *,
    datasets: Collection[str] = (),
    methods: Collection[str] = (),
    batches: Collection[int] = (),
    factors: Collection[float] = (),
) -> list[Need]:
    """What figures by name need, or some data sets, methods and sizes of batch of them.

    With factors, the methods with a penalty alone, with so many times λ's default.
    """
    asked = [_with_factors(paper, paper.figure(name), factors) for name in figures]
    runs = [
        run
        for figure in asked
        for run in figure_recipes(paper, figure, datasets=datasets, methods=methods)
    ]
    return [(run, paper.decisive) for run in runs if not batches or run.batch in batches]


def _with_factors(paper: Paper, figure: Figure, factors: Collection[float]) -> Figure:
    if not factors:
        return figure
    methods = [each for each in figure.methods if paper.method(each).objective.penalty is not None]
    return replace(figure, methods=tuple(methods), factors=tuple(factors))


def figure_recipes(
    paper: Paper,
    figure: Figure,
    *,
    datasets: Collection[str] = (),
    methods: Iterable[str] = (),
) -> tuple[Recipe, ...]:
    """The runs of a figure, of seed 0 and in float32, or those of some data sets and methods."""
    chosen = {spelled(method) for method in methods}
    recipes = tuple(
        _weighted(paper, dataset, method, factor)
        for dataset in figure.datasets
        if dataset in datasets or not datasets
        for method in figure.methods
        if spelled(method) in chosen or not chosen
        for factor in figure.factors
    )
    if not recipes:
        raise ValueError(
            f"the figure {figure.name} has no such runs; it has {', '.join(figure.methods)} on "
            f"{', '.join(figure.datasets)}"
        )
    return recipes


def _weighted(paper: Paper, dataset: str, method: str, factor: float) -> Recipe:
    asked = paper.method(method)
    objective = asked.objective.canonical()
    weighted = replace(objective, weight=factor * objective.weight)
    return paper.recipe(dataset, weighted, asked.model)
