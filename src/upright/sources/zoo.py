"""Trained networks of this project's zoo: ``zoo:DATASET/NAME``."""

from __future__ import annotations

import torch

from upright import zoo
from upright.checks import Model
from upright.sources.registry import model_source

__all__ = ["load_from_zoo"]


@model_source(
    "zoo:DATASET/NAME", r"zoo:(.*)", prefix=True, about="a trained network of `upright zoo list`"
)
def load_from_zoo(name: str, *, device: torch.device) -> Model:
    """Load a network by one of ``upright.zoo.names()``."""
    return zoo.load(name, device=device)
