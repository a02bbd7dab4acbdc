"""Which runs tables and figures need, and by which metrics each is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from upright.paper.cells import wanted
from upright.paper.paper import Figure, Layout, Paper, spelled
from upright.paper.reported import printed
from upright.train import Plan, Recipe

__all__ = ["Need", "figure_needs", "figure_recipes", "table_needs"]

Need = tuple[Plan, str]
"""A recipe or a pair of them, of seed 0 and in float32, and a metric that it is measured by."""


def table_needs(
    paper: Paper, layouts: Iterable[Layout], *, batches: Collection[int] = ()
) -> list[Need]:
    """What the cells of tables need, in the order of the paper; or some sizes of batch of it."""
    needs = dict.fromkeys(_needs(paper, layouts))
    return [need for need in needs if not batches or need[0].main.batch in batches]


def _needs(paper: Paper, layouts: Iterable[Layout]) -> Iterator[Need]:
    for layout in layouts:
        for dataset in layout.datasets:
            for method in layout.methods:
                for metric in layout.metrics:
                    if printed(paper, layout.name, dataset, method, metric):
                        recipes = wanted(paper, dataset, method)
                        yield from ((recipe, metric) for recipe in recipes)


def figure_needs(
    paper: Paper,
    figures: Iterable[str],
    *,
    datasets: Collection[str] = (),
    methods: Collection[str] = (),
    batches: Collection[int] = (),
) -> list[Need]:
    """What figures by name need, or some data sets, methods and sizes of batch of them."""
    runs = [
        run
        for name in figures
        for run in figure_recipes(paper, paper.figure(name), datasets=datasets, methods=methods)
    ]
    return [(run, paper.decisive) for run in runs if not batches or run.batch in batches]


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
