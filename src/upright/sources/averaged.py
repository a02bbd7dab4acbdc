"""Means of models: ``tta-10:MODEL`` over poses of the image, ``mean:MODEL,MODEL`` of several.

``tta-grid-3x3@shift(1px):MODEL`` has a space of its own in place of the paper's, and
``tta-mirror:MODEL`` the image and its mirror image. Random poses are drawn with seed 0;
``upright.tta`` takes others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from upright.ensemble import ensemble
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import load_pretrained, model_source
from upright.train import FinishedRun
from upright.tta import Averaging

__all__ = ["load_averaged", "load_mean"]


def _names_in_mean(names: str) -> list[str]:
    """The names of the models of a mean."""
    found = [name.strip() for name in names.split(",")]
    if len(found) < 2 or not all(found):
        raise ValueError(
            f"mean:{names} is a mean of one; name two models or more, with commas between them, "
            "none of which has a comma itself"
        )
    return found


@model_source(
    "tta-10:MODEL, tta-grid-3x3x5:MODEL or tta-mirror:MODEL",
    r"tta-([^:]*):(.+)",
    prefix=True,
    about="logits averaged over 10 random poses of the paper's space, over a grid (of another "
    "space after an @, as in tta-grid-3x3@shift(1px):MODEL), or over an image and its mirror image",
)
def load_averaged(over: str, name: str, *, device: torch.device) -> Pretrained:
    """Load a model that averages its logits over poses of each image."""
    averaging, inside = Averaging.parse(over), load_pretrained(name, device=device)
    return replace(
        inside,
        outside=lambda model: averaging(inside.outside(model)),
        finished=_finished([inside], averaging),
    )


@model_source(
    "mean:MODEL,MODEL",
    r"mean:(.+)",
    prefix=True,
    about="the mean of the logits of two or more models",
)
def load_mean(names: str, *, device: torch.device) -> Pretrained:
    """Load models that answer as one; each takes images as its source says, or as is told."""
    parts = tuple(load_pretrained(name, device=device) for name in _names_in_mean(names))
    classes = {part.classes for part in parts if part.classes}
    if len(classes) > 1:
        raise ValueError(f"the models of mean:{names} have other classes, or in another order")
    sizes = {(part.preprocess.resize, part.preprocess.center_crop) for part in parts}
    sizes -= {(None, None)}
    if len(sizes) > 1:
        raise ValueError(
            f"the models of mean:{names} want images of several sizes; write a function that "
            "brings images to each, and name it as FILE.py:FUNCTION"
        )
    if len({each.recipe.sizes for part in parts for each in part.trained}) > 1:
        raise ValueError(
            f"the runs of mean:{names} need images of one size: train them with the same --resize, "
            "--center-crop and --view"
        )
    resize, center_crop = next(iter(sizes), (None, None))
    return Pretrained(
        ensemble(*(part.network for part in parts)),
        Preprocess(resize=resize, center_crop=center_crop),
        next(iter(classes), ()),
        in_torch=all(part.in_torch for part in parts),
        members=parts,
        trained=tuple(each for part in parts for each in part.trained),
        finished=_finished(parts),
    )


def _finished(
    parts: Sequence[Pretrained], over: Averaging | None = None
) -> Callable[[], FinishedRun] | None:
    """What looks up the mean of runs, where all parts are runs."""
    runs = [part.finished for part in parts if part.finished is not None]
    if len(runs) < len(parts):
        return None
    return lambda: FinishedRun.mean([run() for run in runs], over)
