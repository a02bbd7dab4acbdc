"""In what a recipe differs from a paper's, in words."""

from __future__ import annotations

from collections.abc import Iterator

from upright.paper.cells import paper_method
from upright.paper.paper import Paper
from upright.train import Plan, Recipe

__all__ = ["UNTOLD", "WORDS", "differences", "recipe_in_words"]

WORDS = {
    "average": "weights averaged ({:g})",
    "batch": "batches of {}",
    "center_crop": "images cropped to {} px",
    "cosine": "learning rate along a cosine",
    "cutout": "cutout of {} px",
    "decay": "learning rate times {:g} again and again",
    "flips": "images not mirrored",
    "held_out": "on nine tenths of the training images",
    "interpolation": "{} interpolation",
    "jitter": "images changed at random by {}",
    "learning_rate": "learning rate {:g}",
    "mixup": "mixup of up to {:g}",
    "momentum": "momentum {:g}",
    "optimizer": "{}",
    "pretrained": "starts from trained weights",
    "resize": "images resized to {} px",
    "smoothing": "labels smoothed by {:g}",
    "space": "searches {}",
    "steps": "{:,} steps",
    "teacher": "taught by another network",
    "view": "view of {} px",
    "warmup": "{:,} steps of warm-up",
    "weight_decay": "weight decay {:g}",
}
"""What a recipe does otherwise than the paper's; what is not here is told by its name."""
UNTOLD = {
    *("data", "decay_every", "drops", "model", "objective", "precision", "seed", "teacher_share"),
    *("families_digest", "model_digest", "pretrained_digest", "teacher_digest"),
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
            yield WORDS[name].format(value) if name in WORDS else f"{name} {value}"
