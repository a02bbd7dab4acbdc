"""Short titles by which people tell saved models apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from upright.report.saved import SavedModel

__all__ = ["titles"]


def titles(models: Sequence[SavedModel]) -> list[str]:
    """Give each model its method or name, with the seed, or all of its name, where two share it."""
    plain = [model.method or model.name for model in models]
    seeded = [
        title if Counter(plain)[title] == 1 or model.seed is None else f"{title}, seed {model.seed}"
        for title, model in zip(plain, models, strict=True)
    ]
    return [
        title if Counter(seeded)[title] == 1 else f"{title}, {model.name}"
        for title, model in zip(seeded, models, strict=True)
    ]
