"""Which runs the paper's figures need.

The figures of λ are printed without the values that were tried, and their lines without names. We
vary λ by factors of two around its default, for the methods of the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from upright.objective import Objective
from upright.paper.cells import STEPS
from upright.paper.method import spelled
from upright.train import Recipe

__all__ = ["FACTORS", "FIGURES", "Figure", "figure", "figure_recipes"]

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Of λ's default: 1 to 32 for KL, 0.125 to 4 for l2."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that is drawn from records."""

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    factors: tuple[float, ...] = (1.0,)
    """Of λ's default."""


FIGURES = (
    Figure(
        name="runtime",
        title="Training time against grid accuracy",
        datasets=("cifar10",),
        methods=(
            "std",
            "std*",
            "AT(rob, Wo-10)",
            "AT(rob, Wo-20)",
            "ALP(rob, rnd)",
            "ALP(rob, Wo-10)",
            "ALP(rob, Wo-20)",
            "KL(nat, rnd)",
            "KL(nat, Wo-10)",
            "KL(nat, Wo-20)",
            "AT(rob, S-PGD)",
            "ALP(rob, S-PGD)",
            "KL(nat, S-PGD)",
        ),
    ),
    Figure(
        name="lambda-rnd",
        title="Accuracy against λ, with random augmentation",
        datasets=("svhn", "cifar10"),
        methods=("L2(nat, rnd)", "KL(nat, rnd)", "L2(rob, rnd)", "KL(rob, rnd)"),
        factors=FACTORS,
    ),
    Figure(
        name="lambda-wo",
        title="Accuracy against λ, with the worst of ten",
        datasets=("svhn", "cifar10"),
        methods=("L2(nat, Wo-10)", "KL(nat, Wo-10)", "L2(rob, Wo-10)", "KL(rob, Wo-10)"),
        factors=FACTORS,
    ),
    Figure(
        name="angles",
        title="Which rotations are misclassified",
        datasets=("cifar10",),
        methods=(
            "std",
            "AT(mix, rnd)",
            "AT(rob, rnd)",
            "ALP(mix, rnd)",
            "AT(mix, Wo-10)",
            "AT(rob, Wo-10)",
            "ALP(mix, Wo-10)",
        ),
    ),
)


def figure(name: str) -> Figure:
    """Find a figure by name."""
    found = [each for each in FIGURES if each.name == name]
    if not found:
        known = ", ".join(each.name for each in FIGURES)
        raise ValueError(f"the paper has no figure {name!r}; choose from {known}")
    return found[0]


def figure_recipes(
    wanted: Figure, *, datasets: Collection[str] = (), methods: Iterable[str] = ()
) -> tuple[Recipe, ...]:
    """The runs of a figure, of seed 0 and in float32, or those of some data sets and methods."""
    chosen = {spelled(method) for method in methods}
    recipes = tuple(
        Recipe(objective=_weighted(method, factor), data=dataset, steps=STEPS[dataset])
        for dataset in wanted.datasets
        if dataset in datasets or not datasets
        for method in wanted.methods
        if spelled(method) in chosen or not chosen
        for factor in wanted.factors
    )
    if not recipes:
        raise ValueError(
            f"the figure {wanted.name} has no such runs; it has {', '.join(wanted.methods)} on "
            f"{', '.join(wanted.datasets)}"
        )
    return recipes


def _weighted(method: str, factor: float) -> Objective:
    objective = Objective.parse(method).canonical()
    return replace(objective, weight=factor * objective.weight)
