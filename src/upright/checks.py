"""Checks of what users bring: a model, images and labels. Each says what is wrong and what to do.

What cannot be right raises ``ValueError``; what is only suspicious warns with ``SuspiciousInput``.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = [
    "Model",
    "SuspiciousInput",
    "check_at_least_1",
    "check_images",
    "check_labels",
    "check_logits",
    "check_numbers",
    "warn_if_classes_differ",
    "warn_if_probabilities",
    "warn_if_random",
    "warn_if_training",
]

Model = Callable[[Tensor], Tensor]
"""Any callable from float images in [0, 1], N x C x H x W, to logits, N x classes."""


class SuspiciousInput(UserWarning):
    """The input is possible, but probably not what was meant."""


def check_at_least_1(**numbers: int | None) -> None:
    """Check options that are counts, or None where they are left open."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")


def check_images(images: Tensor) -> None:
    """Check a batch of float images."""
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(
            f"images must be uint8 or float, N x C x H x W, but a batch is {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    low, high = images.min().item(), images.max().item()
    if not (low >= -1e-6 and high <= 1 + 1e-6):
        _warn(
            f"images reach from {low:.3g} to {high:.3g}, but should lie in [0, 1]: "
            "move the normalisation into the model, since black (0) fills what a pose uncovers"
        )


def check_labels(labels: Tensor, count: int, classes: int) -> None:
    """Check the labels of a batch of ``count`` images against the number of logits."""
    if labels.shape != (count,):
        raise ValueError(
            f"{count} images need {count} labels in one axis, but have shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be class numbers (int64), but are {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels reach from {low} to {high}, but the model has {classes} outputs: labels must "
            f"lie in 0..{classes - 1}; check that they start at 0 and belong to this model"
        )


def check_logits(logits: Tensor, count: int) -> None:
    """Check what a model answered to ``count`` images."""
    if logits.ndim != 2 or len(logits) != count:
        raise ValueError(
            f"the model must return logits of shape [{count}, classes] for {count} images, "
            f"but returned {tuple(logits.shape)}; wrap it in a function that does"
        )


def check_numbers(answers: Tensor) -> None:
    """Check a model's logits, or their losses, which are NaN where a logit is NaN or infinite."""
    if answers.isnan().any():
        raise ValueError(
            "the model returned NaN or infinite logits; check its weights, and try float32 if it "
            "runs in half precision"
        )


def warn_if_probabilities(logits: Tensor) -> None:
    """Warn where outputs look like softmax outputs: the cross-entropy would apply it again."""
    rows = logits.detach().float()
    if logits.shape[1] > 1 and rows.min() >= 0 and (rows.sum(1) - 1).abs().max() < 1e-3:
        _warn("the model's outputs look like probabilities; return logits, before the softmax")


def warn_if_training(model: object) -> None:
    """Warn where a module was left in training mode."""
    if isinstance(model, torch.nn.Module) and any(part.training for part in model.modules()):
        _warn(
            "the model, or a part of it, is in training mode: dropout is on, batch norm depends "
            "on the batch and learns from the test data; call model.eval() first"
        )


def warn_if_classes_differ(outputs: int, classes: int) -> None:
    """Warn where a model has been trained for other classes than the data have."""
    if outputs != classes:
        _warn(
            f"the model has {outputs} outputs, but the data have {classes} classes: its outputs "
            "mean something else than the labels; give data with the classes of the model, in order"
        )


def warn_if_random(first: Tensor, second: Tensor) -> None:
    """Warn where a model answered the same question in two ways."""
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-3):
        _warn(
            "the model answers differently when asked twice, so its worst case depends on chance; "
            "switch off dropout and sampling"
        )


def _warn(message: str) -> None:
    """Warn at the line that called this package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("upright."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, SuspiciousInput, stacklevel=level)
