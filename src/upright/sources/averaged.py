"""Any other model with test-time augmentation: ``tta-10:MODEL`` and ``tta-grid-3x3x5:MODEL``.

The poses are drawn from the paper's space, with seed 0; ``upright.tta`` takes others.
"""

from __future__ import annotations

import torch

from upright.checks import Model
from upright.sources.registry import load_model, model_source
from upright.tta import tta

__all__ = ["load_averaged"]


@model_source("tta-10:MODEL or tta-grid-3x3x5:MODEL", r"tta-(\d+|grid-[^:]+):(.+)", prefix=True)
def load_averaged(poses: str, name: str, *, device: torch.device) -> Model:
    """Load a model that averages its logits over random poses, or over a grid of poses."""
    wanted = int(poses) if poses.isdecimal() else poses
    return tta(load_model(name, device=device), wanted)
