"""Images and networks, taken as a question asks for them."""

from __future__ import annotations

from dataclasses import replace

from upright.checks import Model
from upright.data import LabelledImages, load_data
from upright.evaluation import Question
from upright.evaluation.composed import each_network
from upright.models import in_half_precision
from upright.train import Plan

__all__ = ["in_precision", "load_images", "question_of_run"]


def question_of_run(recipe: Plan, asked: Question | None = None) -> Question:
    """Ask on images of the size that a run trained on; by default the paper's question.

    The attack uncovers what a LocNet was trained to look at, where there is one.
    """
    asked, run = asked or Question(), recipe.main
    return replace(
        asked,
        resize=run.resize,
        center_crop=run.center_crop,
        view=run.view,
        fill=recipe.locnet_fill or asked.fill,
    )


def load_images(question: Question, data: str) -> LabelledImages:
    """Load the images that are asked for, of data by name."""
    return load_data(
        data,
        split=question.split,
        limit=question.limit,
        resize=question.resize,
        center_crop=question.center_crop,
    )


def in_precision(question: Question, model: Model) -> Model:
    """Give the model in the precision in which it is to be evaluated.

    Of a two-stage model that is each network, by its own kernels where it has such. The pose
    between them, and the warp by it, stay in float32: a pose in half precision would be a grid.
    What float16 does to a LocNet's outputs is a small part of its own error, which a test
    holds: 2⁻¹¹ of the limits are 0.015 degrees and 0.0015 px. In bfloat16 it is eight times so.
    """
    precision = question.precision
    if precision == "float32":
        return model
    return each_network(model, lambda network: in_half_precision(network, precision))
