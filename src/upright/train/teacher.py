"""A teacher: a network that was trained before, whose answers to the originals are the labels.

It is asked in every step. Where steps show images as they are or mirrored, and in no other way, it
is asked once of all of them before the first step, and its answers are looked up: a large teacher
would take longer than all else in the steps of a small network.
"""

from __future__ import annotations

import torch
from torch import Tensor

from upright.checks import Model
from upright.data import LabelledImages
from upright.train.batches import Augmented, mirrors_alone
from upright.train.recipe import Recipe
from upright.window import Window

__all__ = ["Teacher", "answers_at_once", "asked_once"]

_AT_ONCE = 1000
"""Images in a pass of the teacher over all of the data."""
_MOST_BYTES = 1 << 30
"""What answers may take on the device."""


class Teacher:
    """Says what labels are."""

    def __init__(self, model: Model, recipe: Recipe, known: Tensor | None = None) -> None:
        """
        Args:
            model: from images to logits, in evaluation mode.
            recipe: what the network is shown, and so the teacher.
            known: its answers, see ``answers_at_once``, where it is not to be asked any more.
        """
        self._model, self._view, self._known = model, recipe.view, known

    def probabilities(self, batch: Augmented) -> Tensor:
        """Say how likely each class is, N x classes, of images as they are augmented."""
        if self._known is None:
            return _probabilities(self._model, batch.images, self._view)
        if batch.draws is None:
            return self._known[0][batch.rows]
        return self._known[(batch.draws < 0.5).long(), batch.rows]


def asked_once(recipe: Recipe, data: LabelledImages) -> bool:
    """Whether to ask the teacher of all images first: if that is less work, and fits."""
    ways = 2 if recipe.flips else 1
    fewer = ways * len(data) <= recipe.steps * recipe.batch
    fits = 4 * ways * len(data) * len(data.classes) <= _MOST_BYTES
    return mirrors_alone(recipe) and fewer and fits


def answers_at_once(model: Model, recipe: Recipe, data: LabelledImages) -> Tensor:
    """Ask of all images, and of their mirror images where steps show them: 1 or 2 x N x classes."""
    said: list[list[Tensor]] = [[], []] if recipe.flips else [[]]
    for pixels in data.images.split(_AT_ONCE):
        images = pixels.float() / 255
        for answers, shown in zip(said, (images, images.flip(-1)), strict=False):
            answers.append(_probabilities(model, shown, recipe.view))
    return torch.stack([torch.cat(answers) for answers in said])


def _probabilities(model: Model, images: Tensor, view: int | None) -> Tensor:
    """Ask of what the network sees of images."""
    with torch.no_grad():
        return model(Window.of(images, view).cut(images)).float().softmax(1)
