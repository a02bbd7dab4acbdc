"""What an image costs: torch's cross-entropy, with its options, or a function of the user's own.

A search needs the loss of each image, a training step one number. For ``nn.CrossEntropyLoss`` the
number is what it gives by its own reduction: with class weights that is not the mean of the losses,
but their sum over the sum of the weights. Any other criterion gives one loss for each image, and
their mean is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch.nn.functional as F
from torch import Tensor, nn

from upright.tiles import is_out_of_memory

__all__ = [
    "Criterion",
    "accuracy_of",
    "ignored_by",
    "is_cross_entropy",
    "losses_of",
    "training_loss",
]

Criterion = Callable[[Tensor, Tensor], Tensor]
"""An ``nn.CrossEntropyLoss``; or any callable from logits, N x classes, and N labels to N losses.
"""


def is_cross_entropy(criterion: Criterion) -> TypeGuard[nn.CrossEntropyLoss]:
    """Whether it is torch's own; of what is made from it, only the user knows what it does."""
    return type(criterion) is nn.CrossEntropyLoss


def ignored_by(criterion: Criterion) -> int | None:
    """The label of images that have none; torch's own criterion has one, -100 unless told."""
    return criterion.ignore_index if is_cross_entropy(criterion) else None


def losses_of(criterion: Criterion, logits: Tensor, labels: Tensor) -> Tensor:
    """Give the loss of each image; logits may have axes of tries before that of images."""
    labels = labels.expand(*logits.shape[:-2], *labels.shape)
    if not is_cross_entropy(criterion):
        return _own_losses(criterion, logits, labels)
    if labels.ndim == logits.ndim:  # soft
        labels = labels.movedim(-1, 1).to(logits.dtype)
    return F.cross_entropy(
        logits.movedim(-1, 1),
        labels,
        weight=criterion.weight,
        ignore_index=criterion.ignore_index,
        label_smoothing=criterion.label_smoothing,
        reduction="none",
    )


def training_loss(criterion: Criterion, logits: Tensor, labels: Tensor) -> Tensor:
    """Give the one number of a batch."""
    if not is_cross_entropy(criterion) or criterion.reduction == "none":
        return losses_of(criterion, logits, labels).mean()
    loss: Tensor = criterion(logits, labels.to(logits.dtype) if labels.ndim == 2 else labels)
    return loss


def accuracy_of(logits: Tensor, labels: Tensor, *, ignored: int | None = None) -> Tensor:
    """Give the share of images that are classified correctly: of a soft label, as its largest.

    Of the images that have a label; NaN where none has. How many these are is not looked at, since
    a look would wait for a GPU.
    """
    numbers = labels.argmax(1) if labels.ndim == 2 else labels
    right = logits.detach().argmax(1) == numbers
    if ignored is None or labels.ndim == 2:
        return right.float().mean()
    counted = labels != ignored
    return (right & counted).sum() / counted.sum()


def _own_losses(criterion: Criterion, logits: Tensor, labels: Tensor) -> Tensor:
    tries = logits.ndim - 2
    flat = logits.flatten(0, tries)
    losses = _asked(criterion, flat, labels.flatten(0, tries))
    if not isinstance(losses, Tensor) or losses.shape != flat.shape[:1]:
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        advice = "give it reduction='none', or wrap it in a function that does"
        if shape == tuple(flat.shape):
            advice = "take the mean or the sum over classes, in a function of logits and labels"
        raise ValueError(
            f"the criterion must give one loss for each of {len(flat)} images, but gave {shape}; "
            f"{advice}"
        )
    return losses.reshape(logits.shape[:-1])


def _asked(criterion: Criterion, logits: Tensor, labels: Tensor) -> Tensor:
    """Ask for losses; an error of torch's own says what was given, which torch does not."""
    try:
        return criterion(logits, labels)
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error) or not criterion.__module__.startswith("torch."):
            raise
        raise ValueError(
            f"the criterion does not take logits of shape {tuple(logits.shape)} and labels of "
            f"shape {tuple(labels.shape)}: {error}; wrap it in a function that does, and gives one "
            "loss for each image"
        ) from error
