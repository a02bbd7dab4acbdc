"""In what a recipe differs from a paper's, in words."""

from __future__ import annotations

from collections.abc import Iterator

from upright.paper.cells import paper_method
from upright.paper.paper import Paper
from upright.report.recipe_words import recipe_words
from upright.train import Plan, Recipe

__all__ = ["UNTOLD", "differences", "recipe_in_words"]

UNTOLD = {
    *("data", "decay_every", "drops", "model", "objective", "precision", "seed", "teacher_share"),
    *("families_digest", "model_digest", "objective_digest", "pretrained_digest"),
    "teacher_digest",
}
"""Of no effect on the result, told elsewhere in a row, or part of something that is told."""


def recipe_in_words(paper: Paper, plan: Plan) -> tuple[str, ...]:
    """Say whether a recipe is the paper's, and in what it differs.

    It is as the paper's where only its method, λ or network is none of the paper.
    """
    every = (word for run in plan.runs for word in differences(paper, run))
    differing = tuple(dict.fromkeys(every))  # members of a mean have much in common
    if paper_method(paper, plan) is not None:
        return ("the paper's", *differing)
    return differing or ("as the paper's",)


def differences(paper: Paper, recipe: Recipe) -> Iterator[str]:
    """Say in what a recipe differs from the paper's for its data set, method and network."""
    usual = paper.recipe(recipe.data, recipe.objective, recipe.model).as_json()
    for name, value in recipe.as_json().items():
        if name not in UNTOLD and value != usual[name]:
            yield recipe_words(name, value)
