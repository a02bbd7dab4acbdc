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


_MOST_BATCHES, _FEW = 8, 0.02
"""Of one round on a GPU, and the part of images that may be asked about in vain for it."""


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

    def pick(self, untried: Tensor, count: int, batches: int = 1) -> Tensor:
        """Give the indices of the hardest poses among those still ``untried`` (bool).

        They are ``count``, or up to so many ``batches`` of them, as long as the expected part of
        images that fall before the last batch is small.
        """
        fooled, tried = self.rates
        rate = torch.where(untried, fooled / tried, -1.0)
        order = rate.argsort(descending=True, stable=True)[: int(untried.sum())]
        falls = rate[order].cumsum(0)
        while batches > 1 and not _few_fall(falls, (batches - 1) * count):
            batches -= 1
        return order[: batches * count]

    def learn(self, poses: Tensor, fooled: Tensor) -> None:
        """Take in which images (columns) were fooled by which poses (rows)."""
        self.rates[0, poses] += fooled.sum(1).float()
        self.rates[1, poses] += fooled.shape[1]


def _few_fall(falls: Tensor, count: int) -> bool:
    """Whether few images fall at the first so many poses, if there are more."""
    return count < len(falls) and bool(falls[count - 1] < _FEW)


def survivors(score: WorstLoss, poses: Pose, hardest: HardestFirst, alive: Tensor) -> Tensor:
    """Say which images no pose fools, out of those ``alive`` (bool, on the host) at the start.

    Each round sends the hardest untried poses to the images that are left, as many poses as fill a
    batch; on a GPU several batches, where few images are likely to fall: to look at a result means
    to wait for it, with nothing to do meanwhile.
    """
    alive, untried = alive.clone(), torch.ones(len(poses), dtype=torch.bool)
    predictor, most = score.predictor, _MOST_BATCHES if score.images.is_cuda else 1
    predictor.advance(int((~alive).sum()) * len(poses))
    while untried.any() and alive.any():
        rows = alive.nonzero()[:, 0]
        each = max(1, predictor.room.batch_size // len(rows))
        now = hardest.pick(untried, each, most)
        untried[now] = False
        tried = poses[now] if poses.shape[-1] == 1 else poses[now][:, rows]
        left = score.restrict(rows)
        values = left.ask(tried).cpu()  # the one wait of a round
        left.check(tried, values)
        fooled = is_fooled(values)
        hardest.learn(now, fooled)
        fell = fooled.any(0)
        alive[rows[fell]] = False
        predictor.advance(int(fell.sum()) * int(untried.sum()))
    return alive


def has_zero(poses: Pose) -> bool:
    """Whether all images try the zero pose, whose outcome is known from the natural pass."""
    return poses.shape[-1] == 1 and bool((poses.values == 0).all(-1).any())
