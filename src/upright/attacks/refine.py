"""Refinement: a search of the continuous box that looks closer where a high score may be.

After DIRECT (Jones, Perttunen and Stuckman 1993, "Lipschitzian optimization without the Lipschitz
constant"): each pose that was tried stands for a box around it, and the boxes to divide are those
that may hold the highest score. How high it may be depends on how steep scores are, and that is
learned from the steps that were taken: an image's usual slope, along each axis over a step.

A box is divided along all its axes at once, by a step either way along each, and then stands for
one of about half the size. Three scores along an axis make a parabola; the next round tries the
pose that is highest on all of them. A step to the highest score so far keeps the size: where scores
rise, the search goes on as fast. Steps that would leave the space end on its faces, where the worst
poses often lie. Rounds divide several boxes at once. And a quarter of all passes goes on covering
the space evenly, for hills to which no step leads.
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
_COVERING = 4
"""One pose in so many goes on covering the space."""
_FIRST_STEP, _SHRINKAGE = 0.12, 0.48
"""The step from a pose of the covering, as a part of its axis's range, and what a division leaves
of it: not a half, or steps from neighbours would meet."""
_SIZES = 12
"""Boxes that have shrunk as often are not divided: steps would be lost in rounding."""
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
        return Boxes(space, self.passes, shift, poses, none, none, nothing, nothing, none)


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
    slopes: Tensor
    """Tries x images: how steep the score was on the step to a pose, whose length is a part of an
    axis's range; 0 where no step led to it."""
    divided: Tensor
    """Boxes x images: from which tries the last round took steps."""
    steps_at: int = 0
    """The first try of those steps."""
    covered: int = 0
    """Poses of the covering so far."""

    def propose(self) -> Pose | None:
        tried, steps = len(self.scores), 2 * len(self._wide)
        if tried >= self.passes or (tried and not steps):
            return None
        if not tried:
            self._try(*self._covering(max(1, _FIRST * len(self._wide))))
        else:
            boxes = max(1, tried * (_COVERING - 1) // (_COVERING * _GROWTH * steps))
            due = self._due(boxes)
            self._try(*self._tops())
            self._try(*self._steps(due))
            self._try(*self._covering(math.ceil(boxes * (steps + 1) / (_COVERING - 1))))
        return Pose(self.poses[tried:], self.space.chain)

    def learn(self, scores: Tensor) -> None:
        tried, device = len(self.scores), scores.device
        self.poses, self.sizes = self.poses.to(device), self.sizes.to(device)
        self.origins, self.divided = self.origins.to(device), self.divided.to(device)
        self.scores = torch.cat((self.scores.to(scores), scores))
        self.slopes = torch.cat((self.slopes.to(scores), self._slopes_since(tried)))
        if tried:
            rises = scores > self.scores[:tried].amax(0)
            self.sizes[tried:] = (self.sizes[tried:] - rises.long()).clamp(min=0)

    def restrict(self, rows: Tensor) -> Boxes:
        def of(tensor: Tensor) -> Tensor:
            return tensor[:, rows.to(tensor.device)]

        return replace(
            self,
            shift=None if self.shift is None else self.shift[rows.to(self.shift.device)],
            poses=of(self.poses),
            sizes=of(self.sizes),
            origins=of(self.origins),
            scores=of(self.scores),
            slopes=of(self.slopes),
            divided=of(self.divided),
        )

    def worst(self) -> WorstCase:
        return pick_worst(Pose(self.poses, self.space.chain), self.scores)

    def best(self, count: int) -> Pose:
        """Give the so many poses that would be divided next: of high scores, and not all alike."""
        return Pose(self._poses_at(self._due(count)), self.space.chain)

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
        nothing = torch.zeros_like(self.slopes)
        steepest = nothing.scatter_reduce(0, self.origins, self.slopes, "amax")
        steps = nothing.scatter_add(0, self.origins, torch.ones_like(nothing))
        is_cover = self.origins == own
        is_divided = steps > is_cover.to(steps)
        known = steepest.masked_fill(~(is_divided & is_cover), math.nan).nanmedian(0).values
        near = torch.where(is_cover, known.nan_to_num(math.inf), steepest.gather(0, self.origins))
        slopes = torch.where(is_divided, steepest, near)
        return (self.scores + slopes * _step(self.sizes.to(slopes)) / 2).amax(0)

    def _slopes_since(self, tried: int) -> Tensor:
        """How steep the score was on the step to each try from that one on."""
        origins = self.origins[tried:]
        rises = (self.scores[tried:] - self.scores.gather(0, origins)).abs()
        if not self._wide:
            return torch.zeros_like(rises)
        low, high = self.poses.new_tensor(self.space.limits)[self._wide].unbind(-1)
        ends = (self.poses[tried:], self._poses_at(origins))
        there, here = (poses[..., self._wide] / (high - low) for poses in ends)
        lengths = (there - here).abs().amax(-1)
        return torch.where(lengths > 0, rises / lengths, 0.0)

    @property
    def _wide(self) -> list[int]:
        """The axes that leave room to move."""
        return [place for place, (low, high) in enumerate(self.space.limits) if low < high]

    def _try(self, poses: Tensor, sizes: Tensor, origins: Tensor) -> None:
        """Note poses of these sizes as the next to try, as far as there are passes for them."""
        left = self.passes - len(self.poses)
        self.poses = torch.cat((self.poses, poses[:left]))
        self.sizes = torch.cat((self.sizes, sizes[:left]))
        self.origins = torch.cat((self.origins, origins[:left]))

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

    def _steps(self, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Divide these boxes: a step either way along each axis, and the sizes that result."""
        self.divided, self.steps_at = boxes, len(self.poses)
        sizes = self.sizes.gather(0, boxes) + 1
        self.sizes = self.sizes.scatter(0, boxes, sizes)
        middles, steps = self._poses_at(boxes), _step((sizes - 1).to(self.poses))
        ways = [(axis, way) for axis in self._wide for way in (1, -1)]
        poses = [self._moved(middles, axis, way * steps) for axis, way in ways]
        return torch.cat(poses), sizes.repeat(len(ways), 1), boxes.repeat(len(ways), 1)

    def _tops(self) -> tuple[Tensor, Tensor, Tensor]:
        """Poses that are highest on the parabolas of all axes, in the boxes divided last.

        They stand for smaller boxes than the steps do: there is less left to find.
        """
        tops, count = self._poses_at(self.divided), len(self.divided)
        for number, axis in enumerate(self._wide):
            ways = [self.steps_at + (2 * number + way) * count for way in (0, 1)]
            steps = [torch.arange(at, at + count, device=tops.device)[:, None] for at in ways]
            tries = torch.stack((self.divided, *(step.expand_as(self.divided) for step in steps)))
            places = self.poses[..., axis].expand(3, -1, -1).gather(1, tries)
            top = _top(places, self.scores.expand(3, -1, -1).gather(1, tries))
            tops[..., axis] = top.clamp(*self.space.limits[axis])
        return tops, self.sizes.gather(0, self.divided) + 1, self.divided

    def _due(self, count: int) -> Tensor:
        """The boxes to divide: where the score may be highest, as steep as it usually is."""
        slopes = torch.where(self.slopes > 0, self.slopes, math.nan)
        usual = slopes.log().nanmean(0).nan_to_num(-math.inf).exp()  # a jump hardly changes it
        hopes = self.scores + len(self._wide) * usual * _step(self.sizes.to(self.scores))
        hopes = hopes.masked_fill(self.sizes >= _SIZES, -math.inf)
        return hopes.argsort(dim=0, descending=True, stable=True)[:count]

    def _poses_at(self, tries: Tensor) -> Tensor:
        return self.poses.gather(0, tries[..., None].expand(-1, -1, self.poses.shape[-1]))

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


def _top(places: Tensor, scores: Tensor) -> Tensor:
    """Where the parabola through three scores is highest, up to two steps beyond the outer places.

    The first is in the middle. A parabola that has no top rises towards the better end.
    """
    (middle, one, other), (score, on_one, on_other) = places.to(scores), scores
    rise, fall = (on_one - score) / (one - middle), (on_other - score) / (other - middle)
    bend = (rise - fall) / (one - other)
    top = middle - (rise - bend * (one - middle)) / (2 * bend)
    way = torch.where(on_one > on_other, one, other) - middle
    low, high = places.amin(0), places.amax(0)
    beyond = high - low
    return torch.where(bend < 0, top, way * math.inf).clamp(low - beyond, high + beyond)


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
