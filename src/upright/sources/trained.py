"""Models that were trained here, by name: of a run, of the zoo, or of two runs together.

``stn-plus:LOCNET,CLASSIFIER`` is the paper's two-stage network, see ``upright.train.two_stage``:
each is a folder of a run of ``upright train``, the first with the objective ``LocNet(black)`` or
``LocNet(reflection)``, the second in the paper with ``std*``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from upright import zoo
from upright.registry import UnknownNameError
from upright.sources.averaged import AVERAGED, MEAN, names_in_mean
from upright.sources.pretrained import Pretrained
from upright.sources.registry import model_source, unknown_model
from upright.train import Recipe, RunDirectory, load_network
from upright.train.two_stage import StnPlus, load_locator
from upright.warp import Fill

__all__ = ["STN_PLUS", "Trained", "load_from_zoo", "load_run", "load_stn_plus", "trained_as"]

STN_PLUS = re.compile(r"stn-plus:([^,]+),([^,]+)")
"""The name of a two-stage network, and in it those of the two runs."""


@model_source(
    "zoo:DATASET/NAME", r"zoo:(.*)", prefix=True, about="a trained network of `upright zoo list`"
)
def load_from_zoo(name: str, *, device: torch.device) -> Pretrained:
    """Load a network by one of ``upright.zoo.names()``."""
    return Pretrained(zoo.load(name, device=device), classes=zoo.card(name).classes)


@model_source(
    "RUN-DIRECTORY", r"([^:]+)", fallback=True, about="the folder of a run of `upright train`"
)
def load_run(name: str, *, device: torch.device) -> Pretrained:
    """Load the newest weights of a run."""
    path = Path(name)
    if not path.is_dir():
        raise _no_run(name)
    run = RunDirectory.open(path)
    if run.recipe.is_locnet:
        raise ValueError(
            f"{name} is a LocNet, which finds poses and no classes; name it together with a "
            f"classifier, as in stn-plus:{name},CLASSIFIER"
        )
    return Pretrained(load_network(path).to(device), classes=run.classes)


def _no_run(name: str) -> ValueError:
    """Any name that is no other model's may be meant as a folder."""
    error = unknown_model(name)
    known = isinstance(error, UnknownNameError)
    return UnknownNameError(f"there is no such folder, and {error}") if known else error


@model_source(
    "stn-plus:LOCNET,CLASSIFIER",
    STN_PLUS.pattern,
    prefix=True,
    about="two runs, of which the first straightens images",
)
def load_stn_plus(locnet: str, classifier: str, *, device: torch.device) -> Pretrained:
    """Load a LocNet and the classifier behind it, each the folder of a run."""
    locator, behind = load_locator(Path(locnet)), load_run(classifier, device=device)
    both = StnPlus(locator, behind.network, locator.fill).to(device).eval()
    return replace(behind, network=both)


@dataclass(frozen=True)
class Trained:
    """How the network that classifies was trained, and on what."""

    recipe: Recipe
    classes: tuple[str, ...]
    data_digest: str
    locnet_fill: Fill | None = None
    """What poses uncovered while the LocNet before it was trained; None where there is none."""


def trained_as(name: str) -> tuple[Trained, ...]:
    """Give what trained the parts of a model by name; nothing for those from elsewhere."""
    if match := AVERAGED.fullmatch(name):
        return trained_as(match[2])
    if match := MEAN.fullmatch(name):
        return tuple(each for part in names_in_mean(match[1]) for each in trained_as(part))
    if match := STN_PLUS.fullmatch(name):
        locnet = RunDirectory.open(Path(match[1])).recipe
        return tuple(replace(each, locnet_fill=locnet.locnet_fill) for each in trained_as(match[2]))
    if name.startswith("zoo:"):
        card = zoo.card(name.removeprefix("zoo:"))
        return (Trained(card.recipe, card.classes, card.train_digest),)
    if Path(name).is_dir():
        run = RunDirectory.open(Path(name))
        return (Trained(run.recipe, run.classes, run.data_digest),)
    return ()
