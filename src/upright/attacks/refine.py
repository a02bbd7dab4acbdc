"""Refinement: a search of the continuous box that looks closer where scores are high.

After DIRECT (Jones, Perttunen and Stuckman 1993, "Lipschitzian optimization without the Lipschitz
constant"): each pose that was tried stands for a box around it, and boxes of all sizes are divided,
the best of each, so that no slope has to be known. As in SOO (Munos 2011) scores are only compared,
and a box that is no better than a larger one waits.

What differs: a box is divided along all its axes at once, by a step either way along each, and then
stands for one of about half the size, so boxes overlap. A step to the highest score so far keeps
the size: where scores rise, the search goes on as fast. Steps that would leave the space end on its
faces, where the worst poses often lie. Rounds divide several boxes at once. And a quarter of all
passes goes on covering the space evenly, for hills to which no step leads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from upright.attacks.base import Rounds, RoundSearch, WorstCase, attack_name, pick_worst
from upright.pose import Pose
from upright.space import Space
from upright.uniform import uniform

__all__ = ["Boxes", "RefiningSearch"]

_FIRST = 5
"""Poses of the first round, for each axis."""
_GROWTH = 6
"""A round has about one part in so many of what was tried before it."""
_FIRST_STEP, _SHRINKAGE = 0.25, 0.48
"""The step from a pose of the covering, as a part of its axis's range, and what a division leaves
of it: not a half, or steps from neighbours would meet."""
_SIZES = 8
"""Boxes that have shrunk as often wait until all others have."""
_BEYOND = 1.25
"""The covering is of a box so much larger; what lies outside the space moves onto its faces."""
_INWARD = 0.7
"""From a face, the step that cannot go outwards goes inwards, but not as far as the other one."""


@dataclass(frozen=True)
class RefiningSearch(RoundSearch):
    """Tries ``passes`` poses of each image: some all over the space, more where scores are high.

    Nothing is random, and fewer passes try the first of more. Where ``shifted``, the poses that
    cover the space are moved by a draw of each image's own: for training, where the same poses at
    every step could be learned by heart.
    """

    passes: int = 775
    shifted: bool = False

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(f"a refining search needs at least 1 pass, but got {self.passes}")

    def __str__(self) -> str:
        return f"refine-{self.passes}{'+rnd' if self.shifted else ''}"

    @property
    def passes_per_image(self) -> int:
        return self.passes

    def begin(self, space: Space, count: int, *, generator: torch.Generator) -> Boxes:
        shape, device = (count, len(space.axes)), generator.device
        shift = uniform(*shape, generator=generator) if self.shifted else None
        nothing = torch.zeros(0, count, device=device)
        poses, none = torch.zeros(0, *shape, device=device), nothing.long()
        return Boxes(space, self.passes, shift, poses, none, none, nothing)


@dataclass
class Boxes(Rounds):
    """What was tried so far; of what was proposed last, poses and sizes are here before scores."""

    space: Space
    passes: int
    shift: Tensor | None
    """Of the covering, images x axes."""
    poses: Tensor
    """Tries x images x axes."""
    sizes: Tensor
    """Tries x images: how often the box around a pose has shrunk."""
    origins: Tensor
    """Tries x images: from which try a step led to a pose; those of the covering have their own."""
    scores: Tensor
    """Tries x images."""
    covered: int = 0
    """Poses of the covering so far."""
    turn: int = 0
    """The size whose best box is divided next."""

    def propose(self) -> Pose | None:
        tried, steps = len(self.scores), 2 * len(self._wide)
        left = self.passes - tried
        if left <= 0 or (tried and not steps):
            return None
        if not tried:
            self._try(*self._covering(max(1, _FIRST * len(self._wide))), left)
        else:
            boxes = max(1, tried * 3 // (4 * _GROWTH * steps))
            self._try(*self._divided(boxes), left)
            self._try(*self._covering(math.ceil(boxes * steps / 3)), left - boxes * steps)
        return Pose(self.poses[tried:], self.space.chain)

    def learn(self, scores: Tensor) -> None:
        tried, device = len(self.scores), scores.device
        self.poses, self.sizes = self.poses.to(device), self.sizes.to(device)
        self.origins = self.origins.to(device)
        self.scores = torch.cat((self.scores.to(scores), scores))
        if tried:
            rises = scores > self.scores[:tried].amax(0)
            self.sizes[tried:] = (self.sizes[tried:] - rises.long()).clamp(min=0)

    def restrict(self, rows: Tensor) -> Boxes:
        return replace(
            self,
            shift=None if self.shift is None else self.shift[rows.to(self.shift.device)],
            poses=self.poses[:, rows.to(self.poses.device)],
            sizes=self.sizes[:, rows.to(self.sizes.device)],
            origins=self.origins[:, rows.to(self.origins.device)],
            scores=self.scores[:, rows.to(self.scores.device)],
        )

    def worst(self) -> WorstCase:
        return pick_worst(Pose(self.poses, self.space.chain), self.scores)

    def best(self, count: int) -> Pose:
        """Give the so many poses that would be divided next: of high scores, and not all alike."""
        chosen = self._due(count)[..., None].expand(-1, -1, self.poses.shape[-1])
        return Pose(self.poses.gather(0, chosen), self.space.chain)

    def ceiling(self) -> Tensor:
        """Let the score around each try rise as steeply as it was seen to, as far as it stands for.

        That is half a step from there. How steeply, its own steps tell; else those of the try that
        led to it; else those from poses of the covering that were divided, at their median.
        """
        if not len(self.scores):
            return self.scores.new_full(self.scores.shape[1:], math.inf)
        if not self._wide:
            return self.scores.amax(0)
        own = torch.arange(len(self.scores), device=self.scores.device)[:, None]
        slopes = self._slopes()
        steepest = torch.zeros_like(slopes).scatter_reduce(0, self.origins, slopes, "amax")
        steps = torch.zeros_like(slopes).scatter_add(0, self.origins, torch.ones_like(slopes))
        is_cover = self.origins == own
        is_divided = steps > is_cover.to(steps)
        known = steepest.masked_fill(~(is_divided & is_cover), math.nan).nanmedian(0).values
        near = torch.where(is_cover, known.nan_to_num(math.inf), steepest.gather(0, self.origins))
        slopes = torch.where(is_divided, steepest, near)
        return (self.scores + slopes * _step(self.sizes.to(slopes)) / 2).amax(0)

    def _slopes(self) -> Tensor:
        """How steep the score was on the step to each try, whose length is a part of a range."""
        low, high = self.poses.new_tensor(self.space.limits)[self._wide].unbind(-1)
        parts = self.poses[..., self._wide] / (high - low)
        from_ = self.origins[..., None].expand_as(parts)
        lengths = (parts - parts.gather(0, from_)).abs().amax(-1)
        rises = (self.scores - self.scores.gather(0, self.origins)).abs()
        return torch.where(lengths > 0, rises / lengths, 0.0)

    @property
    def _wide(self) -> list[int]:
        """The axes that leave room to move."""
        return [place for place, (low, high) in enumerate(self.space.limits) if low < high]

    def _try(self, poses: Tensor, sizes: Tensor, origins: Tensor, left: int) -> None:
        """Note poses of these sizes as the next to try, as far as passes are ``left``."""
        self.poses = torch.cat((self.poses, poses[: max(0, left)]))
        self.sizes = torch.cat((self.sizes, sizes[: max(0, left)]))
        self.origins = torch.cat((self.origins, origins[: max(0, left)]))

    def _covering(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Cover the space evenly, from the identity on: the next poses of a sequence, and sizes.

        It is Roberts' R sequence, the multiples of powers of a number like the golden ratio.
        """
        places = torch.arange(self.covered, self.covered + count, device=self.poses.device)
        poses, ratio = self.poses.new_zeros(count, *self.poses.shape[1:]), _ratio(len(self._wide))
        for power, axis in enumerate(self._wide, 1):
            low, high = self.space.limits[axis]
            parts = places.double()[:, None] * ratio**-power + 0.5
            if self.shift is not None:
                parts = parts + self.shift[:, axis].to(parts)
            around = (parts % 1 - 0.5) * _BEYOND * (high - low)
            poses[..., axis] = (around + (low + high) / 2).clamp(low, high)
        if not self.covered:
            poses[0] = 0.0
        self.covered += count
        sizes = self.sizes.new_zeros(poses.shape[:-1])
        own = torch.arange(len(self.poses), len(self.poses) + count, device=sizes.device)
        return poses, sizes, own[:, None].expand_as(sizes)

    def _divided(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Divide so many boxes: a step either way along each axis, and the sizes that result."""
        chosen = self._due(count)
        sizes = self.sizes.gather(0, chosen) + 1
        self.sizes = self.sizes.scatter(0, chosen, sizes)
        middles = self.poses.gather(0, chosen[..., None].expand(-1, -1, self.poses.shape[-1]))
        steps = _step((sizes - 1).to(middles))
        ways = [(axis, way) for axis in self._wide for way in (1, -1)]
        poses = [self._moved(middles, axis, way * steps) for axis, way in ways]
        return torch.cat(poses), sizes.repeat(len(ways), 1), chosen.repeat(len(ways), 1)

    def _due(self, count: int) -> Tensor:
        """The boxes to divide: the best of each size in turn, then the second best, and so on.

        Those that do not beat every larger box wait, and so do the smallest.
        """
        best = self.scores.argsort(dim=0, descending=True, stable=True)
        few = self.sizes.gather(0, best).to(torch.uint8)  # a byte is sorted sooner
        order = best.gather(0, few.argsort(dim=0, stable=True))
        sizes, scores = self.sizes.gather(0, order), self.scores.gather(0, order)
        places = torch.arange(len(order), device=order.device)[:, None].expand_as(order)
        begins = torch.cat((sizes[:1] < 0, sizes[1:] > sizes[:-1]))
        start = (places * begins).cummax(0).values  # where the boxes of this size begin
        highest = scores.cummax(0).values.gather(0, (start - 1).clamp(min=0))
        wait = ((start > 0) & (scores <= highest)) + 2 * (sizes >= _SIZES)
        key = (wait * len(order) + places - start) * _SIZES + (self.turn - sizes) % _SIZES
        self.turn = (self.turn + count) % _SIZES
        first = (key * len(order) + places).topk(count, dim=0, largest=False).indices  # none equal
        return order.gather(0, first)

    def _moved(self, middles: Tensor, axis: int, steps: Tensor) -> Tensor:
        """Poses moved along an axis by these parts of its range."""
        low, high = self.space.limits[axis]
        old, steps = middles[..., axis], steps * (high - low)
        new = (old + steps).clamp(low, high)
        inward = (old - _INWARD * steps).clamp(low, high)
        poses = middles.clone()
        poses[..., axis] = torch.where(new == old, inward, new)
        return poses


def _step(size: Tensor) -> Tensor:
    """The step from a box that has shrunk so often, as a part of an axis's range."""
    return _FIRST_STEP * _SHRINKAGE**size


def _ratio(axes: int) -> float:
    """The positive root of x**(axes + 1) = x + 1, the golden ratio for one axis."""
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (axes + 1))
    return root


@attack_name(
    "refine-N (as in refine-1000), refine-N+rnd",
    r"refine-(\d+)(\+rnd)?",
    about="at most N poses, more of them where the loss is high; +rnd moves them at random",
)
def _refine(passes: str, shifted: str | None) -> RefiningSearch:
    return RefiningSearch(int(passes), shifted is not None)
