"""Networks of timm and torchvision, with fresh weights: ``timm:NAME`` and ``torchvision:NAME``.

Each is normalised as its published weights want it, so that these, too, take images in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from upright.factories import need_library
from upright.models.registry import network
from upright.normalised import Normalised
from upright.registry import similar_names

__all__ = ["need_timm", "need_torchvision", "timm_network", "torchvision_network"]


@network("timm:NAME", r"timm:(.*)", about="of the library timm, to fine-tune")
def timm_network(name: str, *, classes: int = 1000, channels: int = 3) -> Normalised:
    """Build a network of timm."""
    made = need_timm(name).create_model(name, pretrained=False, num_classes=classes)
    usual = made.pretrained_cfg
    return _normalised(f"timm:{name}", made, usual["mean"], usual["std"], channels)


@network("torchvision:NAME", r"torchvision:(.*)", about="of the library torchvision, likewise")
def torchvision_network(name: str, *, classes: int = 1000, channels: int = 3) -> Normalised:
    """Build a classifier of torchvision."""
    models = need_torchvision(name).models
    made = models.get_model(name, weights=None, num_classes=classes)
    usual = models.get_model_weights(name).DEFAULT.transforms()
    return _normalised(f"torchvision:{name}", made, usual.mean, usual.std, channels)


def need_timm(name: str) -> Any:
    """Import timm, which must have a model of this name."""
    timm = need_library("timm", extra="timm", wanted=f"timm:{name}")
    if not timm.is_model(name):
        near = similar_names(name, timm.list_models(), most=5)
        raise ValueError(
            f"timm has no model {name!r}; "
            + (f"similar names are {', '.join(near)}" if near else "timm.list_models() gives all")
        )
    return timm


def need_torchvision(name: str) -> Any:
    """Import torchvision, which must have a classifier of this name."""
    library = need_library("torchvision", extra="torchvision", wanted=f"torchvision:{name}")
    known = library.models.list_models(module=library.models)
    if name not in known:
        near = similar_names(name, known, most=5)
        raise ValueError(
            f"torchvision has no classifier {name!r}; "
            + (f"similar names are {', '.join(near)}" if near else f"there are {', '.join(known)}")
        )
    return library


def _normalised(
    called: str, made: nn.Module, mean: Sequence[float], std: Sequence[float], channels: int
) -> Normalised:
    if channels != len(mean):
        raise ValueError(
            f"{called} takes images of {len(mean)} channels, but these have {channels}; build one "
            "for them in a file of your own, as FILE.py:FACTORY"
        )
    return Normalised(made, mean, std)
