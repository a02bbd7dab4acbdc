"""What trained the model of a name: known of runs and of the zoo, also inside of other names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from upright import zoo
from upright.sources.averaged import AVERAGED
from upright.sources.stn_plus import STN_PLUS
from upright.train import Recipe, RunDirectory
from upright.warp import Fill

__all__ = ["Trained", "trained_as"]


@dataclass(frozen=True)
class Trained:
    """How the network that classifies was trained, and on what."""

    recipe: Recipe
    classes: tuple[str, ...]
    data_digest: str
    locnet_fill: Fill | None = None
    """What poses uncovered while the LocNet before it was trained; None where there is none."""


def trained_as(name: str) -> Trained | None:
    """Give what trained a model by name; None for a model from elsewhere."""
    if match := AVERAGED.fullmatch(name):
        return trained_as(match[2])
    if match := STN_PLUS.fullmatch(name):
        found, locnet = trained_as(match[2]), RunDirectory.open(Path(match[1])).recipe
        return found and replace(found, locnet_fill=locnet.locnet_fill)
    if name.startswith("zoo:"):
        card = zoo.card(name.removeprefix("zoo:"))
        return Trained(card.recipe, card.classes, card.train_digest)
    if Path(name).is_dir():
        run = RunDirectory.open(Path(name))
        return Trained(run.recipe, run.classes, run.data_digest)
    return None
