"""Any other model with test-time augmentation: ``tta-10:MODEL`` and ``tta-grid-3x3x5:MODEL``.

The poses are drawn from the paper's space, with seed 0; ``upright.tta`` takes others.
"""

from __future__ import annotations

import re

import torch

from upright.checks import Model
from upright.sources.registry import load_model, model_source
from upright.tta import tta

__all__ = ["AVERAGED", "load_averaged"]

AVERAGED = re.compile(r"tta-(\d+|grid-[^:]+):(.+)")
"""Its name, and in it the poses and the name of the other model."""


@model_source(
    "tta-10:MODEL or tta-grid-3x3x5:MODEL",
    AVERAGED.pattern,
    prefix=True,
    about="logits averaged over 10 random poses of the paper's space, or over a grid",
)
def load_averaged(poses: str, name: str, *, device: torch.device) -> Model:
    """Load a model that averages its logits over random poses, or over a grid of poses."""
    wanted = int(poses) if poses.isdecimal() else poses
    return tta(load_model(name, device=device), wanted)
