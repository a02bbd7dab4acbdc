"""Models that were trained here, by name: of a run, of the zoo, or of two runs together.

``stn-plus:LOCNET,CLASSIFIER`` is the paper's two-stage network, see ``upright.train.two_stage``:
each is a folder of a run of ``upright train``, the first with the objective ``LocNet(black)`` or
``LocNet(reflection)``, the second in the paper with ``std*``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from upright import zoo
from upright.registry import UnknownNameError
from upright.sources.pretrained import Pretrained, Trained
from upright.sources.registry import model_source, unknown_model
from upright.train import FinishedRun, Pair, RunDirectory, load_network
from upright.train.two_stage import StnPlus, load_locator
from upright.zoo import Card

__all__ = ["load_from_zoo", "load_run", "load_stn_plus"]


@model_source(
    "zoo:DATASET/NAME", r"zoo:(.*)", prefix=True, about="a trained network of `upright zoo list`"
)
def load_from_zoo(name: str, *, device: torch.device) -> Pretrained:
    """Load a network by one of ``upright.zoo.names()``."""
    card = zoo.card(name)
    return Pretrained(
        zoo.load(name, device=device),
        classes=card.classes,
        trained=(Trained(card.recipe, card.classes, card.train_digest),),
        finished=partial(_run_of, card),
    )


def _run_of(card: Card) -> FinishedRun:
    first = card.records[0]
    return FinishedRun(card.recipe, card.train_seconds, first.beside, first.trained_by, packed=True)


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
    return Pretrained(
        load_network(path).to(device),
        classes=run.classes,
        trained=(Trained(run.recipe, run.classes, run.data_digest),),
        finished=partial(FinishedRun.open, path),
    )


def _no_run(name: str) -> ValueError:
    """Any name that is no other model's may be meant as a folder."""
    error = unknown_model(name)
    known = isinstance(error, UnknownNameError)
    return UnknownNameError(f"there is no such folder, and {error}") if known else error


@model_source(
    "stn-plus:LOCNET,CLASSIFIER",
    r"stn-plus:([^,]+),([^,]+)",
    prefix=True,
    about="two runs, of which the first straightens images",
)
def load_stn_plus(locnet: str, classifier: str, *, device: torch.device) -> Pretrained:
    """Load a LocNet and the classifier behind it, each the folder of a run."""
    locator, behind = load_locator(Path(locnet)), load_run(classifier, device=device)
    first, (second,) = RunDirectory.open(Path(locnet)).recipe, behind.trained
    Pair(locnet=first, classifier=second.recipe, oracle=False)  # which looks at whether they fit
    both = StnPlus(locator, behind.network, locator.fill).to(device).eval()
    return replace(
        behind,
        network=both,
        trained=tuple(replace(each, locnet_fill=locator.fill) for each in behind.trained),
        finished=partial(FinishedRun.of_pair, Path(locnet), Path(classifier), oracle=False),
    )
