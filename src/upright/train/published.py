"""The settings with which a network was published, where they are not the paper's.

STN and ETN: Tai, Bailis and Valiant (2019), on SVHN.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from upright.train.recipe import Recipe

__all__ = ["published", "published_settings"]

_TRANSFORMERS = re.compile(r"(stn|stn-affine|etn)\d.*")
_EPOCHS, _BATCH = 300, 128


def published(recipe: Recipe, images: int, *, steps: int | None = None) -> Recipe:
    """Give a recipe the published settings of its network; others stay as they are.

    Only how it is trained changes: objective, data, network, space, precision and seed stay.
    ``images`` is how many there are to train on, which tells how many steps an epoch has. The run
    ends after ``steps``, if these are given, and not after 300 epochs; until then, it is the same.
    """
    settings = published_settings(recipe.model)
    if not settings:
        return recipe
    epoch = max(1, images // _BATCH)
    steps = _EPOCHS * epoch if steps is None else steps
    return replace(recipe, **settings, steps=steps, decay_every=epoch)


def published_settings(model: str) -> dict[str, Any]:
    """Give the fields of a recipe that ``published`` replaces, but for those that count steps."""
    if not _TRANSFORMERS.fullmatch(model):
        return {}
    return {
        "batch": _BATCH,
        "learning_rate": 2e-3,
        "drops": (),
        "decay": 0.99,
        "cosine": False,
        "optimizer": "adam",
        "momentum": 0.9,
        "weight_decay": 0.0,
        "flips": False,
        "max_shift": 0,
    }
