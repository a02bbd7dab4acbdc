"""What a step asks the network to say: labels, or probabilities where a recipe softens them.

Labels may be smoothed, mixed with those of other images, or taken from a teacher: a network that
was trained before. Each gives a probability of every class, so all of them are one rule, and the
loss needs none of their own. The search for the worst pose maximises the same loss.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.train.recipe import Recipe

__all__ = ["mixed", "soft_labels"]


def soft_labels(recipe: Recipe, labels: Tensor, classes: int, said: Tensor | None) -> Tensor:
    """Give the probabilities that a recipe has for labels, N x classes.

    Args:
        recipe: how far they are smoothed, and what part of them a teacher says.
        labels: class numbers.
        classes: how many there are.
        said: the teacher's probabilities, if there is one.
    """
    hard = F.one_hot(labels, classes).float()
    soft = hard.lerp(hard.new_full((), 1 / classes), recipe.smoothing)
    return soft if said is None else soft.lerp(said, recipe.teacher_share)


def mixed(
    images: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor]:
    """Mix a share of another image, and of its label, into each image.

    Args:
        images: N x C x H x W.
        labels: probabilities, N x classes.
        others: as many other images.
        other_labels: their probabilities.
        shares: of each other image in the mixture, N.
    """
    return (
        torch.lerp(images, others, shares[:, None, None, None]),
        torch.lerp(labels, other_labels, shares[:, None]),
    )
