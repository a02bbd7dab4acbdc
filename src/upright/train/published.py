"""The settings with which a network was published, where they are not the paper's.

STN and ETN: Tai, Bailis and Valiant (2019), on SVHN.
"""

from __future__ import annotations

import re
from dataclasses import replace

from upright.train.recipe import Recipe

__all__ = ["published"]

_TRANSFORMERS = re.compile(r"(stn|stn-affine|etn)\d.*")
_EPOCHS, _BATCH = 300, 128


def published(recipe: Recipe, images: int) -> Recipe:
    """Give a recipe the published settings of its network; others stay as they are.

    Only how it is trained changes: objective, data, network, space, precision and seed stay.
    ``images`` is how many there are to train on, which tells how many steps an epoch has.
    """
    if not _TRANSFORMERS.fullmatch(recipe.model):
        return recipe
    epoch = max(1, images // _BATCH)
    return replace(
        recipe,
        steps=_EPOCHS * epoch,
        batch=_BATCH,
        learning_rate=2e-3,
        drops=(),
        decay=0.99,
        decay_every=epoch,
        optimizer="adam",
        momentum=0.9,
        weight_decay=0.0,
        flips=False,
        max_shift=0,
    )
