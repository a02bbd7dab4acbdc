"""Which poses fool a model, of the images that were saved at all poses."""

from __future__ import annotations

import torch

from upright.fooled import FooledPoses, pack_bits
from upright.report.saved import SavedModel, Shown

__all__ = ["fooled_poses"]


def fooled_poses(shown: Shown, model: SavedModel) -> FooledPoses:
    """Give what is wrong among a model's answers to the explored images."""
    explored = len(shown.images)
    labels = shown.labels[:explored]
    wrong = model.predicted.reshape(explored, -1) != labels[:, None]
    natural = torch.as_tensor(model.natural != labels)
    return FooledPoses(shown.poses(), pack_bits(torch.as_tensor(wrong)), natural)
