"""The gradient of a score by the pose, for attacks that climb."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from upright.pose import Pose

__all__ = ["gradient_of", "scored"]

_OTHERS = "an attack that needs none, such as grid-775 or wo-10"


def scored(score: Callable[[Pose], Tensor], pose: Pose) -> Tensor:
    """Score poses: with a gradient where their values require one, and else without."""
    with torch.set_grad_enabled(pose.values.requires_grad):
        try:
            return score(pose)
        except RuntimeError as error:
            if not pose.values.requires_grad or "Inference tensors" not in str(error):
                raise
            raise ValueError(
                "s-pgd needs the gradient of the model, and this one was made or loaded under "
                "torch.inference_mode, so that it gives none; make it outside of that, or use "
                f"{_OTHERS}"
            ) from error


def gradient_of(scores: Tensor, pose: Pose) -> Tensor:
    """Give the gradient of each score by its own pose."""
    if not scores.requires_grad:
        raise ValueError(
            f"s-pgd needs the gradient of the model, and this model gives none; use {_OTHERS}"
        )
    (gradient,) = torch.autograd.grad(scores, pose.values, torch.ones_like(scores))
    return gradient
