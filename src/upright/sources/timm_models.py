"""Models of the library timm, with their pretrained weights: ``timm:NAME``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from upright.checks import Model
from upright.sources.needs import need_library
from upright.sources.registry import model_source

__all__ = ["Normalised", "load_timm"]


class Normalised(nn.Module):
    """Takes images in [0, 1] to a network that wants them shifted by a mean and scaled by a std."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network((images - self.mean) / self.std)
        return logits


@model_source("timm:NAME", r"timm:(.*)")
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
    found = difflib.get_close_matches(name, timm.list_models(), n=5)
    return (
        f"similar names are {', '.join(found)}" if found else "timm.list_models() gives all names"
    )
