"""Images at hand, augmented as rows of the data are."""

from __future__ import annotations

import torch
from torch import Tensor

from upright.ranks import ALONE, Part
from upright.train import Recipe
from upright.train.batches import _after_flips, _mirror_draws, _mirrored


def augment(
    images: Tensor, recipe: Recipe, generator: torch.Generator, part: Part | None = None
) -> Tensor:
    """What ``augmented_rows`` does to images once they are floats, of any values."""
    part = part or ALONE.part(len(images))
    images = _mirrored(images, _mirror_draws(recipe, generator, part))
    return _after_flips(images, recipe, generator, part)
