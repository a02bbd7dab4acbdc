"""A teacher: a network that was trained before, whose answers to the originals are the labels.

It is asked in every step. Where steps show images as they are or mirrored, and in no other way, it
is asked once of all of them before the first step, and its answers are looked up: a large teacher
would take longer than all else in the steps of a small network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from upright.checks import Model
from upright.data import LabelledImages
from upright.train.batches import Augmented, mirrors_alone
from upright.train.recipe import Recipe
from upright.window import Window

__all__ = ["Teacher", "asked_in_each_step", "asked_once", "pays_at_once"]

Teacher = Callable[[Augmented], Tensor]
"""Says how likely each class is, N x classes, of images as a step shows them."""

_MOST_BYTES = 1 << 30
"""What answers may take on the device."""
_AT_ONCE = 4
"""Batches in a pass over all of the data: without a gradient they need less than one with it."""


def asked_in_each_step(model: Model, view: int | None) -> Teacher:
    """Give a teacher that looks at the images that steps show, whatever is done to them.

    Args:
        model: from images to logits, in evaluation mode.
        view: which part of images it sees, of its own training.
    """
    return lambda batch: _probabilities(model, batch.images, view)


def asked_once(model: Model, view: int | None, recipe: Recipe, data: LabelledImages) -> Teacher:
    """Ask of all images, and of their mirror images where steps show them, and remember it."""
    said: list[list[Tensor]] = [[], []] if recipe.flips else [[]]
    for pixels in data.images.split(_AT_ONCE * recipe.batch):
        images = pixels.float() / 255
        for answers, shown in zip(said, (images, images.flip(-1)), strict=False):
            answers.append(_probabilities(model, shown, view))
    known = torch.stack([torch.cat(answers) for answers in said])

    def looked_up(batch: Augmented) -> Tensor:
        mirrored = batch.mirrored
        return known[0 if mirrored is None else mirrored.long(), batch.rows]

    return looked_up


def pays_at_once(recipe: Recipe, data: LabelledImages, asked: int) -> bool:
    """Whether to ask of all images first: if steps show no others, it is less work, and fits.

    ``asked`` says of how many images the steps would ask.
    """
    answers = (2 if recipe.flips else 1) * len(data)
    fits = 4 * answers * len(data.classes) <= _MOST_BYTES
    return mirrors_alone(recipe) and answers <= asked and fits


def _probabilities(model: Model, images: Tensor, view: int | None) -> Tensor:
    with torch.no_grad():
        return model(Window.of(images, view).cut(images)).float().softmax(1)
