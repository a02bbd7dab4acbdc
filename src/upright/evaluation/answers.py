"""What a model answers at each of a list of poses: the class, and how sure it is of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from upright.checks import Model, check_numbers
from upright.evaluation.score import Predictor, named_image, severity
from upright.pose import Pose
from upright.tiles import Room, images_at_once
from upright.warp import warp

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
) -> Answers:
    """Ask a model about every image at every pose.

    Args:
        model: any callable from float images in [0, 1], N x C x H x W, to logits, N x classes.
        images: float, N x C x H x W; black is what a pose uncovers.
        labels: int64, N.
        poses: of shape (M,).
        device: where to compute.
        view: show the model the central so many pixels of the moved images; None for all of them.
    """
    predictor = Predictor(model, Room(images_at_once(images, 128)))
    asked = [
        _ask(predictor, place, image[None].to(device), label, poses, view)
        for place, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    return Answers(
        *(torch.stack([getattr(each, part.name) for each in asked]) for part in fields(Answers))
    )


def _ask(
    predictor: Predictor,
    place: int,
    image: Tensor,
    label: Tensor,
    poses: Pose,
    view: int | None,
) -> Answers:
    """Ask about one image, in batches of poses."""
    parts = [
        predictor.peek(warp(image, part[:, None], view=view).flatten(0, 1)).float().cpu()
        for part in poses.split(predictor.room.batch_size)
    ]
    logits = torch.cat(parts)
    check_numbers(logits, lambda at: named_image(place, poses[at[0]]))
    shares = logits.softmax(1)
    most, predicted = shares.max(1)
    worst = severity(logits, label.expand(len(logits))).argmax()
    rest = shares.scatter(1, predicted[:, None], -1)  # so that of equals none comes twice
    others = rest.topk(min(_OTHERS, shares.shape[1] - 1))
    return Answers(predicted, most, worst, others.indices, others.values)
