"""The search of a training step: the poses that are worst for the model as it is now."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from upright.attacks import CandidateSearch, Score, pick_worst
from upright.modes import joined
from upright.objective.criterion import Criterion, losses_of
from upright.objective.product import Objective, Target
from upright.penalties import penalties_of
from upright.pose import Pose
from upright.space import Space
from upright.tiles import Room, Tiles, images_at_once, images_on_a_gpu

__all__ = ["Search", "repeated", "room_for"]


def room_for(images: Tensor) -> Room:
    """How many images a search asks about at once: many, since they leave no graph behind.

    Enough for the paper's batches in one call.
    """
    return Room(images_on_a_gpu(images) if images.is_cuda else images_at_once(images, 2048))


def repeated(values: Tensor, times: int) -> Tensor:
    """All values so many times, one after another; without a copy where that is once."""
    return values if times == 1 else values.repeat(times, *[1] * (values.ndim - 1))


@dataclass
class Search:
    """Scores poses of a batch, each image as often as the objective has draws."""

    objective: Objective
    criterion: Criterion
    ask: Callable[[Tensor], Tensor]
    move: Callable[[Tensor, Pose], Tensor]
    room: Room
    images: Tensor
    seen: Tensor
    """What the model sees of them as they are."""
    labels: Tensor

    @cached_property
    def copies(self) -> Tensor:
        """The images, once for each draw."""
        return repeated(self.images, self.objective.draws)

    @cached_property
    def wanted(self) -> Tensor:
        """The labels of the copies."""
        return repeated(self.labels, self.objective.draws)

    @cached_property
    def originals(self) -> Tensor:
        """The logits of the originals."""
        with torch.no_grad():  # of a copy: a model may write into what it is given
            return self.ask(self.seen.clone())

    def worst_poses(self, space: Space, generator: torch.Generator) -> dict[Target, Pose]:
        """Find the pose of each copy for each target."""
        attack, targets, count = self.objective.attack, self.objective.targets, len(self.copies)
        assert attack is not None
        if not isinstance(attack, CandidateSearch):
            return {
                target: attack.worst_pose(self.score(target), space, count, generator=generator)
                for target in targets
            }
        # One list serves both targets: each still sees draws from the same distribution.
        candidates = attack.candidates(space, count, generator=generator)
        found = self.values(candidates, targets, with_originals="penalty" in targets)
        return {
            target: pick_worst(candidates, values).pose
            for target, values in zip(targets, found, strict=True)
        }

    def score(self, target: Target) -> Score:
        """What an attack maximises."""
        return lambda pose: self.values(pose, (target,))[0]

    def values(
        self, pose: Pose, targets: tuple[Target, ...], *, with_originals: bool = False
    ) -> tuple[Tensor, ...]:
        """Give what targets say of poses: from one call of the model, or from several that fit."""
        passes = math.prod(pose.shape[:-1]) * len(self.copies)
        passes += with_originals * len(self.images)
        if passes <= self.room.batch_size:
            try:
                logits = self._logits(pose, slice(None), with_originals=with_originals)
                found = tuple(self._value(target, logits, slice(None)) for target in targets)
            except Exception as error:
                self.room.make_room(passes, error)
            else:
                self.room.fitted(passes)
                return found
        tile = partial(self._tile, targets)
        values = Tiles(self.room, len(self.copies), self.images.device, tile)(pose)
        return values.unbind(-1) if len(targets) > 1 else (values,)

    def _tile(self, targets: tuple[Target, ...], pose: Pose, rows: slice) -> Tensor:
        logits = self._logits(pose, rows)
        values = [self._value(target, logits, rows) for target in targets]
        return torch.stack(values, -1) if len(values) > 1 else values[0]

    def _logits(self, pose: Pose, rows: slice, *, with_originals: bool = False) -> Tensor:
        """The logits under a pose; on the way also those of the originals, in the same call."""
        moved = self.move(self.copies[rows], pose)
        asked = moved.flatten(0, -4)
        if with_originals:
            answers = self.ask(joined((self.seen, asked)))
            self.originals, answers = answers.split((len(self.seen), len(asked)))
        else:
            answers = self.ask(asked)
        return answers.reshape(*moved.shape[:-3], -1)

    def _value(self, target: Target, logits: Tensor, rows: slice) -> Tensor:
        if target == "cross-entropy":
            return losses_of(self.criterion, logits, self.wanted[rows])
        assert self.objective.penalty is not None
        originals = repeated(self.originals, self.objective.draws)
        return penalties_of(self.objective.penalty, originals[rows], logits)
