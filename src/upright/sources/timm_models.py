"""Models of the library timm, with their pretrained weights: ``timm:NAME``."""

from __future__ import annotations

from typing import Any

import torch

from upright.checks import Model
from upright.normalised import Normalised
from upright.registry import similar_names
from upright.sources.registry import model_source, need_library

__all__ = ["load_timm"]


@model_source("timm:NAME", r"timm:(.*)", prefix=True, about="with its published weights")
def load_timm(name: str, *, device: torch.device, pretrained: bool = True) -> Model:
    """Load a network of timm, wrapped so that it takes images in [0, 1]."""
    timm = need_library("timm", extra="timm", wanted=f"timm:{name}")
    if not timm.is_model(name):
        raise ValueError(f"timm has no model {name!r}; {_similar(timm, name)}")
    try:
        network = timm.create_model(name, pretrained=pretrained)
    # Weights come over the network: what that raises depends on who serves them.
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(f"timm could not load {name}: {text}") from error
    settings = network.pretrained_cfg
    return Normalised(network, settings["mean"], settings["std"]).to(device).eval()


def _similar(timm: Any, name: str) -> str:
    found = similar_names(name, timm.list_models(), most=5)
    return (
        f"similar names are {', '.join(found)}" if found else "timm.list_models() gives all names"
    )
