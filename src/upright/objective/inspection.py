"""A look at what a loss is given: all of the first batch, and of later ones what costs nothing.

On a GPU a look at a value waits for all that is still to be computed. So values are looked at in
the first batch, and on a CPU in every one; shapes and dtypes always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from upright import checks
from upright.attacks.given import check_inside, check_shape
from upright.objective.criterion import Criterion, ignored_by, is_cross_entropy
from upright.penalties import Penalty
from upright.pose import Pose
from upright.space import Space
from upright.tracing import have_values

__all__ = ["Ask", "Inspection"]

Ask = Callable[[checks.Model, Tensor], Tensor]
"""Asks a model for the logits of images."""


class Inspection:
    """Knows whether the first batch has been looked at, and found good."""

    def __init__(self) -> None:
        self.is_first = True
        self._looked_at_logits = self._looked_at_poses = self._leaves_out = False
        self._outputs = 0

    def begin(self, ask: Ask, images: Tensor, labels: Tensor, criterion: Criterion) -> Ask:
        """Check a batch; give what asks models, and holds the first answer against the labels."""
        _check_forms(images, labels, criterion)
        values = have_values() and (self.is_first or images.device.type == "cpu")
        if values:
            checks.check_pixels(images)
        answered = False

        def asked(model: checks.Model, shown: Tensor) -> Tensor:
            nonlocal answered
            logits = ask(model, shown)
            if not answered:
                self._check_answer(logits, labels, criterion, values)
                answered = True
            return logits

        return asked

    def look_at_poses(self, who: str, found: Iterable[Pose], space: Space, count: int) -> None:
        """Look at what a search found, one pose for each of so many images."""
        for pose in found:
            check_shape(who, pose, f"({count},)", (count,))
            is_free = pose.values.device.type == "cpu"
            if have_values() and (is_free or not self._looked_at_poses):
                check_inside(who, pose, space)
        self._looked_at_poses = have_values() or self._looked_at_poses

    def end(self, penalty: Tensor | None, of: Penalty | None) -> None:
        """Look at the penalty of a batch whose logits were looked at, and are numbers."""
        if self._looked_at_logits and penalty is not None and not penalty.isfinite():
            if self._leaves_out:
                raise ValueError(
                    "a logit of minus infinity leaves a class out, with which there is no penalty; "
                    "let the network give a large negative number, such as -1e4"
                )
            raise ValueError(
                f"the penalty is {penalty.item():g} where all logits are numbers; "
                "check what it divides by, and of what it takes the root or the logarithm"
            )
        if self._looked_at_logits and of is not None and self._outputs == 1 and _sees_nothing(of):
            raise ValueError(
                "the network has one output, of which probabilities never differ, and no penalty "
                "comes: let it give two, as torch.cat((0 * z, z), 1)"
            )
        self._looked_at_logits = False

    def _check_answer(
        self, logits: Tensor, labels: Tensor, criterion: Criterion, values: bool
    ) -> None:
        if is_cross_entropy(criterion):
            _check_classes(criterion, labels, logits.shape[1], values)
        if values and self.is_first:
            checks.check_numbers(checks.as_numbers(logits))
            self._outputs = logits.shape[1]
            checks.warn_if_probabilities(logits)
            self.is_first, self._looked_at_logits = False, True
            self._leaves_out = bool((logits == -math.inf).any())


def _sees_nothing(penalty: Penalty) -> bool:
    """Whether all is the same to a penalty where there is one logit, as it is to a softmax."""
    low = torch.zeros(1, 1)
    return bool(penalty(low, low + 1) == penalty(low, low))


def _check_forms(images: Tensor, labels: Tensor, criterion: Criterion) -> None:
    _check_tensors(images=images, labels=labels)
    checks.check_float_images(images)
    checks.check_layout(images)
    if not len(images):
        raise ValueError("a batch is empty: there is nothing to learn from; leave it out")
    if not is_cross_entropy(criterion):  # what its labels are it knows itself
        if labels.shape[:1] != images.shape[:1]:
            raise ValueError(
                f"{len(images)} images need as many labels, but have shape {tuple(labels.shape)}"
            )
    elif labels.ndim > 1:
        checks.check_soft_label_form(labels, len(images))
    else:
        checks.check_label_form(labels, len(images))


def _check_tensors(**given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, but are {type(value).__name__}")


def _check_classes(
    criterion: nn.CrossEntropyLoss, labels: Tensor, classes: int, values: bool
) -> None:
    if criterion.weight is not None:
        checks.check_class_weights(criterion.weight, classes)
    if labels.ndim > 1:
        checks.check_soft_label_classes(labels, classes)
        if values:
            checks.warn_if_no_probabilities(labels)
    elif values:
        checks.check_label_range(labels, classes, ignored=ignored_by(criterion))
