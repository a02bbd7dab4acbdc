"""The evaluation's score: the paper's rule for which pose of an image is the worst."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.checks import Model, check_numbers
from upright.logits import ask
from upright.pose import Pose
from upright.warp import warp

__all__ = ["Move", "Predictor", "WorstLoss", "is_fooled", "loss_of", "rank"]

Move = Callable[[Tensor, Pose], Tensor]
"""Gives images under poses, as ``warp`` does."""

# More than any cross-entropy of a correctly classified image: that is below log(classes).
_RIGHT = 1000.0
# Right among several has no such bound: a loss beyond this one counts as this one.
_MOST = _RIGHT - 1


def rank(logits: Tensor, labels: Tensor, top: int = 1) -> Tensor:
    """Order poses as the paper does: first misclassified or not, then by cross-entropy.

    Misclassified: the loss. Correct, which is that the true class is among the ``top`` largest
    logits: the loss less a constant, so that it lies below every misclassified one. In float64,
    where the constant costs no digit of a float32 loss.
    """
    loss = F.cross_entropy(logits.double(), labels, reduction="none")
    return torch.where(_is_right(logits, labels, top), loss.clamp(max=_MOST) - _RIGHT, loss)


def _is_right(logits: Tensor, labels: Tensor, top: int) -> Tensor:
    """Whether fewer than ``top`` classes stand before the true one; of equals, the first does."""
    own = logits.gather(1, labels[:, None])
    earlier = torch.arange(logits.shape[1], device=labels.device) < labels[:, None]
    return ((logits > own) | ((logits == own) & earlier)).sum(1) < top


def is_fooled(value: Tensor) -> Tensor:
    """Say from the rank whether the pose is misclassified."""
    return value >= 0


def loss_of(value: Tensor) -> Tensor:
    """Give the cross-entropy back from the rank."""
    return torch.where(is_fooled(value), value, value + _RIGHT)


@dataclass
class Predictor:
    """Asks a model for logits, never for more images at once than fit."""

    model: Model
    batch_size: int
    advance: Callable[[int], None] = lambda _: None
    passes: int = field(default=0, init=False)

    def __call__(self, images: Tensor) -> Tensor:
        logits = ask(self.model, images)
        self.passes += len(images)
        self.advance(len(images))
        return logits

    def peek(self, images: Tensor) -> Tensor:
        """Ask without counting it: for a look at the model before anything is measured."""
        parts = images.split(self.batch_size)
        try:
            logits = torch.cat([ask(self.model, part) for part in parts])
        except (MemoryError, RuntimeError) as error:
            self.make_room(min(self.batch_size, len(images)), error)
            return self.peek(images)
        check_numbers(logits)
        return logits

    def make_room(self, tried: int, error: Exception) -> None:
        """Take smaller batches from now on, after one of ``tried`` images did not fit."""
        if not _is_out_of_memory(error):
            raise error
        if tried <= 1:
            raise MemoryError(
                "the model does not fit into memory with a single image; "
                "use a smaller model, smaller images or another device"
            ) from error
        self.batch_size = tried // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class WorstLoss:
    """A score (see ``attacks.Score``) for a chunk of images: the rank of the model's answer."""

    predictor: Predictor
    images: Tensor
    labels: Tensor
    move: Move = warp
    value: Callable[[Tensor, Tensor], Tensor] = rank
    """What logits and labels are worth."""

    def __call__(self, pose: Pose) -> Tensor:
        position = pose.stack().to(self.images.device)  # once: a copy from the host waits
        if position.requires_grad and position.ndim > 2:
            position = position.expand(-1, len(self.images), -1)  # each image has its own slope
        if position.ndim > 2 and position.shape[-2] == 1:
            values = self._tile(position[..., 0, :], self.images, self.labels)
        else:
            count = len(self.images)
            row = torch.arange(count, device=self.images.device).expand(position.shape[:-1])
            values = self._pairs(position.reshape(-1, 3), row.reshape(-1))
            values = values.reshape(position.shape[:-1])
        check_numbers(values)
        return values

    def restrict(self, rows: Tensor) -> WorstLoss:
        """Score some of the images only."""
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    def predicted(self, pose: Pose) -> Tensor:
        """Give the class of the largest logit under a pose; not counted, since no search asks."""
        aside = replace(self.predictor, advance=lambda _: None)
        return replace(self, predictor=aside, value=lambda logits, _: logits.argmax(1))(pose)

    def _tile(self, positions: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Score every pose on every image: poses x images, in tiles that fit."""
        batch, poses, count = self.predictor.batch_size, len(positions), len(images)
        if count > batch:
            parts = zip(images.split(batch), labels.split(batch), strict=True)
            return torch.cat([self._tile(positions, *part) for part in parts], 1)
        if poses * count > batch and poses > 1:
            parts_ = positions.split(max(1, batch // count))
            return torch.cat([self._tile(part, images, labels) for part in parts_])
        try:
            values = self._ranks(positions[:, None], images, labels)
            return values.reshape(poses, count)
        except (MemoryError, RuntimeError) as error:
            self.predictor.make_room(poses * count, error)
        return self._tile(positions, images, labels)

    def _pairs(self, positions: Tensor, rows: Tensor) -> Tensor:
        """Score each pose on the image in its row, in batches that fit."""
        batch = self.predictor.batch_size
        if len(positions) > batch:
            parts = zip(positions.split(batch), rows.split(batch), strict=True)
            return torch.cat([self._pairs(*part) for part in parts])
        try:
            return self._ranks(positions, self.images[rows], self.labels[rows])
        except (MemoryError, RuntimeError) as error:
            self.predictor.make_room(len(positions), error)
        return self._pairs(positions, rows)

    def _ranks(self, positions: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Rank one batch; where a gradient is asked, it is taken at once.

        The result then is the linear function that has the value and the gradient of the rank: the
        model's graph is freed with its batch, and memory stays bounded by one batch.
        """
        wants_gradient = torch.is_grad_enabled() and positions.requires_grad
        here = positions.detach().requires_grad_(wants_gradient)
        moved = self.move(images, Pose.unstack(here)).flatten(0, -4)
        repeats = len(moved) // len(labels)
        value = self.value(self.predictor(moved), labels.repeat(repeats))
        if not (wants_gradient and value.requires_grad):
            return value.detach()
        (slope,) = torch.autograd.grad(value.sum(), here)
        linear = (slope * (positions - here.detach())).sum(-1)
        return value.detach() + linear.to(value)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        "not enough memory" in str(error) or "can't allocate memory" in str(error)
    )
