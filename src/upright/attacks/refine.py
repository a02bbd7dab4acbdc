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
from upright.devices import sent
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
        ranges, shift = Ranges.of(space, generator.device), None
        if self.shifted:
            shift = ranges.columns_of(uniform(count, len(space.axes), generator=generator))
        cover = ranges.cover(self.passes, shift)
        nothing = torch.zeros(0, count, device=generator.device)
        places, none = nothing[..., None].expand(-1, -1, len(ranges.wide)), nothing.long()
        return Boxes(self.passes, ranges, cover, places, none, none, nothing, nothing, none)


@dataclass(frozen=True)
class Ranges:
    """The axes of a space that leave room to move.

    A place is a pose by them alone, each value as a part of its axis's range. All axes are one
    dimension of tensors: a round is as many operations, however many there are.
    """

    space: Space
    wide: tuple[int, ...]
    widths: Tensor
    limits: Tensor
    """Of poses, 2 x axes."""
    ends: Tensor
    """Of places, 2 x axes."""

    @classmethod
    def of(cls, space: Space, device: torch.device) -> Ranges:
        wide = tuple(axis for axis, (low, high) in enumerate(space.limits) if low < high)
        numbers = torch.zeros(3, len(wide), device=device)
        for column, (low, high) in enumerate(space.limits[axis] for axis in wide):
            for row, number in enumerate((high - low, low, high)):
                numbers[row, column].fill_(number)  # a CUDA graph captures no copy from the host
        widths, limits = numbers[0], numbers[1:]
        return cls(space, wide, widths, limits, limits / widths)

    def to(self, device: torch.device) -> Ranges:
        there = (sent(tensor, device) for tensor in (self.widths, self.limits, self.ends))
        return Ranges(self.space, self.wide, *there)

    def poses(self, places: Tensor) -> Pose:
        """Give places as poses; their other axes are zero."""
        values = (places * self.widths).clamp(*self.limits)
        if len(self.wide) < len(self.space.axes):
            moved, values = values, values.new_zeros(*values.shape[:-1], len(self.space.axes))
            for column, axis in enumerate(self.wide):
                values[..., axis] = moved[..., column]
        return Pose(values, self.space.chain)

    def columns_of(self, values: Tensor) -> Tensor:
        """Give the columns of these axes alone."""
        return torch.cat([values[..., :0], *(values[..., axis, None] for axis in self.wide)], -1)

    def cover(self, count: int, shift: Tensor | None) -> Tensor:
        """Cover the space evenly, from the identity on: places x images x axes.

        It is Roberts' R sequence, the multiples of powers of a number like the golden ratio. All
        images share it, which is one here, or have it shifted each by their own numbers.
        """
        axes, device = len(self.wide), self.widths.device
        powers = torch.arange(1.0, axes + 1, device=device, dtype=torch.float64)
        parts = torch.arange(count, device=device)[:, None, None] * _ratio(axes) ** -powers + 0.5
        if shift is not None:
            parts = parts + shift
        around = ((parts % 1 - 0.5) * _BEYOND).float() + self.ends.mean(0)
        places = around.clamp(*self.ends)
        places[0].zero_()
        return places


@dataclass
class Boxes(Rounds):
    """What was tried so far; of what was proposed last, places and sizes are here before scores."""

    passes: int
    ranges: Ranges
    cover: Tensor
    """Places that cover the space, as many as passes x images, or x 1, x axes."""
    places: Tensor
    """Tries x images x axes."""
    sizes: Tensor
    """Tries x images: how often the box around a place has shrunk."""
    origins: Tensor
    """Tries x images: from which try a step led to a place; those of the cover have their own."""
    scores: Tensor
    """Tries x images."""
    slopes: Tensor
    """Tries x images: how steep the score was on the step to a place; 0 where no step led to it."""
    divided: Tensor
    """Boxes x images: from which tries the last round took steps."""
    steps_at: int = 0
    """The first try of those steps."""
    covered: int = 0
    """Places of the cover that were tried."""

    @property
    def poses(self) -> Pose:
        return self.ranges.poses(self.places)

    def propose(self) -> Pose | None:
        tried, steps = len(self.scores), 2 * len(self.ranges.wide)
        if tried >= self.passes or (tried and not steps):
            return None
        if not tried:
            self._try(self._covering(max(1, steps * _FIRST // 2), at=0))
        else:
            boxes = max(1, tried * (_COVERING - 1) // (_COVERING * _GROWTH * steps))
            due, tops = self._due(boxes), self._tops()
            divisions = self._divisions(due, at=tried + len(self.divided))
            covering = math.ceil(boxes * (steps + 1) / (_COVERING - 1))
            self._try(tops, divisions, self._covering(covering, at=self.steps_at + boxes * steps))
        return self.ranges.poses(self.places[tried:])

    def learn(self, scores: Tensor) -> None:
        tried, scores = (
            len(self.scores),
            scores.to(torch.promote_types(scores.dtype, torch.float32)),
        )
        self._move(scores.device)
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
            cover=self.cover if self.cover.shape[1] == 1 else of(self.cover),
            places=of(self.places),
            sizes=of(self.sizes),
            origins=of(self.origins),
            scores=of(self.scores),
            slopes=of(self.slopes),
            divided=of(self.divided),
        )

    def worst(self) -> WorstCase:
        return pick_worst(self.poses, self.scores)

    def best(self, count: int) -> Pose:
        """Give the so many poses that would be divided next: of high scores, and not all alike."""
        return self.ranges.poses(self._places_at(self._due(count)))

    def ceiling(self) -> Tensor:
        """Let the score around each try rise as steeply as it was seen to, as far as it stands for.

        That is half a step from there. How steeply, its own steps tell; else those of the try that
        led to it; else those from places of the cover that were divided, at their median.
        """
        if not len(self.scores):
            return self.scores.new_full(self.scores.shape[1:], math.inf)
        if not self.ranges.wide:
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

    def _move(self, device: torch.device) -> None:
        """Go on where scores are."""
        if self.places.device != device:
            self.ranges, self.cover = self.ranges.to(device), sent(self.cover, device)
            self.places, self.sizes = sent(self.places, device), sent(self.sizes, device)
            self.origins, self.divided = sent(self.origins, device), sent(self.divided, device)

    def _slopes_since(self, tried: int) -> Tensor:
        """How steep the score was on the step to each try from that one on."""
        origins = self.origins[tried:]
        rises = (self.scores[tried:] - self.scores.gather(0, origins)).abs()
        if not self.ranges.wide:
            return torch.zeros_like(rises)
        lengths = (self.places[tried:] - self._places_at(origins)).abs().amax(-1)
        return torch.where(lengths > 0, rises / lengths, 0.0)

    def _try(self, *parts: tuple[Tensor, Tensor, Tensor]) -> None:
        """Note places, sizes and origins of what to try next, as far as there are passes for it."""
        places, sizes, origins = zip(*parts, strict=True)
        self.places = torch.cat((self.places, *places))[: self.passes]
        self.sizes = torch.cat((self.sizes, *sizes))[: self.passes]
        self.origins = torch.cat((self.origins, *origins))[: self.passes]

    def _covering(self, count: int, at: int) -> tuple[Tensor, Tensor, Tensor]:
        """Take the next places of the cover, for the tries from that one on."""
        shape = self.scores.shape[1]
        places = self.cover[self.covered : self.covered + count].expand(-1, shape, -1)
        self.covered += count
        own = torch.arange(at, at + len(places), device=places.device)[:, None].expand(-1, shape)
        return places, torch.zeros_like(own), own

    def _divisions(self, boxes: Tensor, at: int) -> tuple[Tensor, Tensor, Tensor]:
        """Divide these boxes: a step either way along each axis, in the tries from that one on."""
        self.divided, self.steps_at = boxes, at
        sizes = self.sizes.gather(0, boxes) + 1
        self.sizes = self.sizes.scatter(0, boxes, sizes)
        here, step = self._places_at(boxes), _step((sizes - 1).to(self.places))[..., None]
        steps = torch.stack((step, -step))
        new = (here + steps).clamp(*self.ranges.ends)
        new = torch.where(new == here, (here - _INWARD * steps).clamp(*self.ranges.ends), new)
        axes = len(self.ranges.wide)
        along = torch.eye(axes, device=new.device, dtype=torch.bool)[:, None, None, None]
        places = torch.where(along, new, here)  # axes x ways x boxes x images x axes
        ways = (2 * axes, -1, -1)
        return (
            places.flatten(0, 2),
            sizes.expand(*ways).flatten(0, 1),
            boxes.expand(*ways).flatten(0, 1),
        )

    def _tops(self) -> tuple[Tensor, Tensor, Tensor]:
        """Places that are highest on the parabolas of all axes, in the boxes divided last.

        They stand for smaller boxes than the steps do: there is less left to find.
        """
        boxes, axes = self.divided, len(self.ranges.wide)
        steps = slice(self.steps_at, self.steps_at + 2 * axes * len(boxes))
        ends, scores = (
            tensor[steps].unflatten(0, (axes, 2, len(boxes)))
            for tensor in (self.places, self.scores)
        )
        top = _top(
            self._places_at(boxes).to(scores),
            self.scores.gather(0, boxes)[..., None],
            ends.diagonal(dim1=0, dim2=-1).to(scores),  # each step by its own axis
            scores.movedim(0, -1),
        )
        places = top.to(self.places).clamp(*self.ranges.ends)
        return places, self.sizes.gather(0, boxes) + 1, boxes

    def _due(self, count: int) -> Tensor:
        """The boxes to divide: where the score may be highest, as steep as it usually is."""
        slopes = torch.where(self.slopes > 0, self.slopes, math.nan)
        usual = slopes.log().nanmean(0).nan_to_num(-math.inf).exp()  # a jump hardly changes it
        hopes = self.scores + len(self.ranges.wide) * usual * _step(self.sizes.to(self.scores))
        hopes = hopes.masked_fill(self.sizes >= _SIZES, -math.inf)
        return hopes.argsort(dim=0, descending=True, stable=True)[:count]

    def _places_at(self, tries: Tensor) -> Tensor:
        return self.places.gather(0, tries[..., None].expand(-1, -1, self.places.shape[-1]))


def _step(size: Tensor) -> Tensor:
    """The step from a box that has shrunk so often, as a part of an axis's range."""
    return _FIRST_STEP * _SHRINKAGE**size


def _top(here: Tensor, score: Tensor, ends: Tensor, scores: Tensor) -> Tensor:
    """Where the parabola through three scores is highest, up to two steps beyond the outer places.

    The first of them is here. A parabola that has no top is followed towards the better end.
    """
    rise, fall = (scores - score) / (ends - here)
    (one, other), (on_one, on_other) = ends, scores
    bend = (rise - fall) / (one - other)
    top = here - (rise - bend * (one - here)) / (2 * bend)
    way = torch.where(on_one > on_other, one, other) - here
    low, high = here.minimum(ends.amin(0)), here.maximum(ends.amax(0))
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
