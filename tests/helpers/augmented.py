"""Images at hand, augmented as rows of the data are."""

from __future__ import annotations

import torch
from torch import Tensor

from upright.train import Recipe
from upright.train.batches import _after_flips, _mirror_draws, _mirrored


def augment(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """What ``augmented_rows`` does to images once they are floats, of any values."""
    images = _mirrored(images, _mirror_draws(recipe, generator, len(images)))
    return _after_flips(images, recipe, generator)
