"""Means of models: ``tta-10:MODEL`` over poses of the image, ``mean:MODEL,MODEL`` of several.

``tta-grid-3x3@shift(1px):MODEL`` has a space of its own in place of the paper's, and
``tta-mirror:MODEL`` the image and its mirror image. Random poses are drawn with seed 0;
``upright.tta`` takes others.
"""

from __future__ import annotations

import re
from dataclasses import replace

import torch

from upright.ensemble import ensemble
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.sources.registry import load_pretrained, model_source
from upright.tta import Averaging

__all__ = ["AVERAGED", "MEAN", "load_averaged", "load_mean"]

AVERAGED = re.compile(r"tta-([^:]+):(.+)")
"""Its name, and in it the averaging and the name of the other model."""
MEAN = re.compile(r"mean:([^,]+(?:,[^,]+)+)")
"""Its name, and in it those of the other models, with commas between them."""


@model_source(
    "tta-10:MODEL, tta-grid-3x3x5:MODEL or tta-mirror:MODEL",
    AVERAGED.pattern,
    prefix=True,
    about="logits averaged over 10 random poses of the paper's space, over a grid (of another "
    "space after an @, as in tta-grid-3x3@shift(1px):MODEL), or over an image and its mirror image",
)
def load_averaged(over: str, name: str, *, device: torch.device) -> Pretrained:
    """Load a model that averages its logits over poses of each image."""
    averaging, inside = Averaging.parse(over), load_pretrained(name, device=device)
    return replace(inside, outside=lambda model: averaging(inside.outside(model)))


@model_source(
    "mean:MODEL,MODEL",
    MEAN.pattern,
    prefix=True,
    about="the mean of the logits of two or more models",
)
def load_mean(names: str, *, device: torch.device) -> Pretrained:
    """Load models that answer as one; each has its own preprocessing inside."""
    parts = [load_pretrained(name, device=device) for name in names.split(",")]
    first = parts[0]
    if any(part.classes != first.classes for part in parts if part.classes and first.classes):
        raise ValueError(f"the models of mean:{names} have other classes, or in another order")
    usual = Preprocess(resize=first.preprocess.resize, center_crop=first.preprocess.center_crop)
    return Pretrained(
        ensemble(*(part.model(device=device) for part in parts)),
        usual,
        first.classes,
        in_torch=all(part.in_torch for part in parts),
    )
