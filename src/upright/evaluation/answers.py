"""What a model answers at each of a list of poses: the class, and how sure it is of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from upright.checks import Model
from upright.evaluation.score import Predictor, WorstLoss, logits_themselves, severity
from upright.pose import Pose
from upright.tiles import Room, images_at_once
from upright.warp import Resampling

__all__ = ["Answers", "answers"]

_OTHERS = 4
"""With the likeliest class they are the usual five."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers to N images at M poses. Tensors lie on the CPU."""

    predicted: Tensor
    """int64, N x M: the class of the largest logit."""
    confidence: Tensor
    """float32, N x M: the softmax probability of that class."""
    worst: Tensor
    """int64, N: which of the poses is the worst, by the evaluation's rule."""
    others: Tensor
    """int64, N x M x up to 4: the classes that are the likeliest after that, in their order."""
    others_confidence: Tensor
    """float32, of the same shape: their softmax probabilities."""


@torch.no_grad()
def answers(
    model: Model,
    images: Tensor,
    labels: Tensor,
    poses: Pose,
    *,
    device: torch.device | str = "cpu",
    view: int | None = None,
    canvas: int = 0,
) -> Answers:
    """Ask a model about every image at every pose.

    Args:
        model: any callable from float images in [0, 1], N x C x H x W, to logits, N x classes.
        images: float, N x C x H x W; black is what a pose uncovers.
        labels: int64, N.
        poses: of shape (M,).
        device: where to compute.
        view: show the model the central so many pixels of the moved images; None for all of them.
        canvas: how many pixels of canvas the images have around them.
    """
    score = WorstLoss(
        Predictor(model, Room(images_at_once(images, 128))),
        images.to(device),
        labels.to(device),
        Resampling(view=view, margin=canvas),
        value=logits_themselves,
        places=torch.arange(len(images)),
    )
    # One image after another: many poses and many classes would be too much of all at once.
    asked = [_of_one(score.restrict(torch.tensor([at])), poses) for at in range(len(images))]
    return Answers(
        *(torch.stack([getattr(each, part.name) for each in asked]) for part in fields(Answers))
    )


def _of_one(score: WorstLoss, poses: Pose) -> Answers:
    logits = score(poses[:, None])[:, 0].float().cpu()
    shares = logits.softmax(1)
    most, predicted = shares.max(1)
    worst = severity(logits, score.labels.cpu().expand(len(logits))).argmax()
    rest = shares.scatter(1, predicted[:, None], -1)  # so that of equals none comes twice
    others = rest.topk(min(_OTHERS, shares.shape[1] - 1))
    return Answers(predicted, most, worst, others.indices, others.values)
