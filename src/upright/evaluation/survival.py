"""Accuracy alone, in as few passes as it takes: an image that is fooled is not asked again.

The poses that fool most images come first. Which those are is learned on the way: every pose starts
with the guess that it is the harder the closer it lies to a corner of the box, and each trial moves
its rate. The order changes the cost and never the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upright.evaluation.score import WorstLoss, is_fooled
from upright.pose import Pose
from upright.space import Space

__all__ = ["HardestFirst", "has_zero", "survivors"]


@dataclass(frozen=True, eq=False)
class HardestFirst:
    """Remembers how often each pose fooled an image that had survived the ones before."""

    rates: Tensor
    """Of each pose, in two rows: how many images it fooled, and of how many."""

    @staticmethod
    def guess(poses: Pose, space: Space) -> HardestFirst:
        """Begin with what is known of no image: poses near a corner are hard."""
        nearness = space.fractions(poses).abs().mean((-2, -1))
        return HardestFirst(torch.stack((0.1 * nearness, torch.ones(len(poses)))))

    def pick(self, untried: Tensor, count: int) -> Tensor:
        """Give the indices of the ``count`` hardest poses among those still ``untried`` (bool)."""
        fooled, tried = self.rates
        rate = torch.where(untried, fooled / tried, -1.0)
        return rate.argsort(descending=True, stable=True)[: min(count, int(untried.sum()))]

    def learn(self, poses: Tensor, fooled: Tensor) -> None:
        """Take in which images (columns) were fooled by which poses (rows)."""
        self.rates[0, poses] += fooled.sum(1).float()
        self.rates[1, poses] += fooled.shape[1]


def survivors(score: WorstLoss, poses: Pose, hardest: HardestFirst, alive: Tensor) -> Tensor:
    """Say which images no pose fools, out of those ``alive`` (bool) at the start.

    Each round sends the hardest untried poses to the images that are left, as many poses as fill a
    batch.
    """
    alive, untried = alive.clone(), torch.ones(len(poses), dtype=torch.bool)
    predictor = score.predictor
    predictor.advance(int((~alive).sum()) * len(poses))
    while untried.any() and alive.any():
        rows = alive.nonzero()[:, 0]
        now = hardest.pick(untried, max(1, predictor.room.batch_size // len(rows)))
        untried[now] = False
        tried = poses[now] if poses.shape[-1] == 1 else poses[now][:, rows.cpu()]
        fooled = is_fooled(score.restrict(rows)(tried))
        hardest.learn(now, fooled.cpu())
        fell = fooled.any(0)
        alive[rows[fell]] = False
        predictor.advance(int(fell.sum()) * int(untried.sum()))
    return alive


def has_zero(poses: Pose) -> bool:
    """Whether all images try the zero pose, whose outcome is known from the natural pass."""
    return poses.shape[-1] == 1 and bool((poses.values == 0).all(-1).any())
