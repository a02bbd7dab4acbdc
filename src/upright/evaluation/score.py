"""The evaluation's score: the paper's rule for which pose of an image is the worst."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from upright.attacks import WorstCase, worse_of
from upright.checks import Model, as_numbers, check_numbers
from upright.devices import sent
from upright.evaluation.journal import Journal
from upright.evaluation.seen import SeenClasses
from upright.logits import Asker
from upright.pose import Pose
from upright.tiles import Room, Tiles
from upright.warp import Resampling, warp
from upright.window import Form

__all__ = [
    "Move",
    "Predictor",
    "WorstLoss",
    "is_fooled",
    "loss_of",
    "may_be_fooled",
    "named_image",
    "or_as_it_is",
    "severity",
]

Move = Callable[[Tensor, Pose], Tensor]
"""Gives images under poses, as ``warp`` does."""

# More than the log-odds of any correctly classified image: they are below log(classes).
_RIGHT = 1000.0
# Right among several has no such bound: log-odds beyond this one count as this one. Where they are
# below its negative, losses are 0 to all digits of a float64.
_MOST = _RIGHT - 1


def severity(logits: Tensor, labels: Tensor, top: int = 1) -> Tensor:
    """Order poses as the paper does: first misclassified or not, then by cross-entropy.

    Misclassified: the log-odds against the true class. Correct, which is that the true class is
    among the ``top`` largest logits: the same less a constant, so that they lie below every
    misclassified one. In float64, where the constant costs no digit of a float32 loss.

    The order of log-odds is that of cross-entropies, log(1 + odds). But they go on rising and
    falling as logits do where cross-entropies are flat, near 0: searches that follow slopes see
    them there.
    """
    wide, own = as_numbers(logits).double(), labels[:, None]
    others = wide.scatter(1, own, -math.inf).logsumexp(1)
    log_odds = (others - wide.gather(1, own)[:, 0]).clamp(min=-_MOST)
    return torch.where(_is_right(logits, labels, top), log_odds.clamp(max=_MOST) - _RIGHT, log_odds)


def _is_right(logits: Tensor, labels: Tensor, top: int) -> Tensor:
    """Whether fewer than ``top`` classes stand before the true one; of equals, the first does."""
    if top == 1:
        return logits.argmax(1) == labels
    own = logits.gather(1, labels[:, None])
    earlier = torch.arange(logits.shape[1], device=labels.device) < labels[:, None]
    return ((logits > own) | ((logits == own) & earlier)).sum(1) < top


def logits_themselves(logits: Tensor, labels: Tensor) -> Tensor:
    """Keep what a model says."""
    del labels
    return as_numbers(logits)


def is_fooled(value: Tensor) -> Tensor:
    """Say from the severity whether the pose is misclassified."""
    return value >= 0


def may_be_fooled(value: Tensor, top: int) -> Tensor:
    """Say from the severity whether the odds are as high as those of a wrong answer can be.

    There ``top`` classes are at least as probable as the true one: the odds against it are at least
    ``top`` to 1.
    """
    return value >= math.log(top) - _RIGHT


def loss_of(value: Tensor) -> Tensor:
    """Give the cross-entropy back from the severity."""
    log_odds = torch.where(is_fooled(value), value, value + _RIGHT)
    return torch.logaddexp(log_odds, torch.zeros_like(log_odds))


def or_as_it_is(worst: WorstCase, natural: Tensor) -> WorstCase:
    """Take the zero pose, of this severity, where it does more to an image than what was found."""
    still = worst.pose.like(torch.zeros_like(worst.pose.values))
    return worse_of(worst, WorstCase(still, natural, forward_passes=0))


@dataclass
class Predictor:
    """Asks a model for logits, and counts how often."""

    model: Model
    room: Room
    advance: Callable[[int], None] = lambda _: None
    ask: Asker = field(default_factory=Asker)
    passes: int = field(default=0, init=False)

    def __call__(self, images: Tensor) -> Tensor:
        return self.ask(self.model, images)

    def as_shown(self, move: Move, images: Tensor) -> Move:
        """Let images be moved into the form in which the model takes them, where that can be."""
        if not isinstance(move, Resampling):
            return move
        form = Form(self.ask.dtype_for(self.model) or images.dtype, self._channels_last)
        return replace(move, form=None if form == Form(images.dtype) else form)

    @cached_property
    def _channels_last(self) -> bool:
        """Whether the model's convolutions have their weights so, and would turn images round."""
        weights = self.model.parameters() if isinstance(self.model, nn.Module) else ()
        return any(map(_lies_channels_last, weights))

    def count(self, images: int) -> None:
        """Count what was asked, once there is an answer to work with."""
        self.passes += images
        self.advance(images)


@dataclass(frozen=True)
class WorstLoss:
    """A score (see ``attacks.Score``) for a chunk of images: the severity of the model's answer."""

    predictor: Predictor
    images: Tensor
    labels: Tensor
    move: Move = warp
    value: Callable[[Tensor, Tensor], Tensor] = severity
    """What logits and labels are worth."""
    seen: SeenClasses | None = None
    """Where classes are kept, if they are."""
    places: Tensor | None = None
    """Of the images in the data, on the host."""
    journal: Journal | None = None
    """Where answers are noted, if an evaluation that is stopped is to go on."""

    def __call__(self, pose: Pose) -> Tensor:
        values = self.ask(pose)
        self.check(pose, values)
        return values

    def ask(self, pose: Pose) -> Tensor:
        """Give values that nobody has looked at: a GPU may still be at work on them."""
        predictor, device, room = self.predictor, self.images.device, self.predictor.room
        journal = self.journal
        noted = None if journal is None else journal.call(pose, self.places, self.seen, device)
        tiles = Tiles(room, len(self.images), device, self._of_tile, predictor.count, noted)
        return tiles(pose)

    def check(self, pose: Pose, values: Tensor) -> None:
        """Check what was asked: where it lies on a GPU, that waits for it."""
        climbs = pose.values.requires_grad
        check_numbers(values, partial(self._which, pose), with_gradient=climbs)

    def restrict(self, rows: Tensor) -> WorstLoss:
        """Score some of the images only, by their rows, on the host."""
        places = None if self.places is None else self.places[rows]
        there = sent(rows, self.images.device)
        return replace(self, images=self.images[there], labels=self.labels[there], places=places)

    def with_own_seen(self) -> WorstLoss:
        """Keep apart the classes that are seen from now on, if any are kept."""
        return self if self.seen is None else replace(self, seen=SeenClasses([*self.seen.answers]))

    def predicted(self, pose: Pose) -> Tensor:
        """Ask for the class of the largest logit under a pose of each image."""
        asked = replace(self, value=lambda logits, _: logits.argmax(1), seen=None, journal=None)
        return asked(pose)

    def _which(self, pose: Pose, at: tuple[int, ...]) -> str:
        """Say which image it is, under which pose, whose value lies there."""
        at = at[: len(pose.shape)]  # behind it lie classes, where values are logits
        place = at[-1] if self.places is None else int(self.places[at[-1]])
        shared = (*at[:-1], 0) if pose.shape[-1] == 1 else at
        return named_image(place, pose[shared])

    def _of_tile(self, pose: Pose, rows: slice) -> Tensor:
        """Give the values of one tile of poses and images."""
        images, labels = self.images[rows], self.labels[rows]
        moved = self.predictor.as_shown(self.move, images)(images, pose)
        asked = moved.flatten(0, -4)
        logits, tries = self.predictor(asked), len(asked) // len(labels)
        value = self.value(logits, labels.repeat(tries))
        if self.seen is not None:
            row = torch.arange(len(self.images), device=value.device)[rows].repeat(tries)
            self.seen.answers.append((row, value.detach(), logits.detach().argmax(1)))
        found: Tensor = value.unflatten(0, moved.shape[:-3])
        return found


def _lies_channels_last(weight: Tensor) -> bool:
    """Whether it does, and could also lie otherwise, as weights of one pixel or channel cannot."""
    if weight.ndim != 4 or weight.is_contiguous():
        return False
    return weight.is_contiguous(memory_format=torch.channels_last)


def named_image(place: int, pose: Pose) -> str:
    """Say which image is meant, and how it was moved.

    >>> named_image(7, Pose.zeros(1)[0])
    'image 7, counted from 0, as it is'
    >>> named_image(8, Pose(torch.tensor([1, -2.5, 30])))
    'image 8, counted from 0, at dx 1 px, dy -2.5 px, angle 30 degrees'
    """
    moved = f"at {pose.in_words()}" if any(pose.values.tolist()) else "as it is"
    return f"image {place}, counted from 0, {moved}"
