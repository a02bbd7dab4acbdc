"""Any other model with test-time augmentation: ``tta-10:MODEL`` and ``tta-grid-3x3x5:MODEL``.

The poses are drawn from the paper's space, with seed 0; ``upright.tta`` takes others.
"""

from __future__ import annotations

import re
from dataclasses import replace

import torch

from upright.sources.pretrained import Pretrained
from upright.sources.registry import load_pretrained, model_source
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
def load_averaged(poses: str, name: str, *, device: torch.device) -> Pretrained:
    """Load a model that averages its logits over random poses, or over a grid of poses."""
    wanted = int(poses) if poses.isdecimal() else poses
    inside = load_pretrained(name, device=device)
    return replace(inside, outside=lambda model: tta(inside.outside(model), wanted))
