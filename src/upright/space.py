"""The set of poses that is searched: a box around the zero pose, of any chain of families."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from upright.families import RIGID, Axis, Chain, chain_of
from upright.pose import Pose
from upright.uniform import uniform

__all__ = ["PAPER", "Space"]

_LEAST_COUNT, _OF_FEW = 3, {1: 31, 2: 11}
"""Of a grid that nobody gave counts for: poses in all, and of an axis that is made coarser."""


@dataclass(frozen=True, repr=False)
class Space:
    """A chain of families, each axis of it between two limits.

    Its text and its object are the same thing: ``Space.of("shift(3px) rotate(30)")`` is the
    paper's, and ``str`` gives the text back. Limits of shifts are in pixels, or in per cent of the
    image's width and height, which ``in_pixels`` resolves.
    """

    chain: Chain = RIGID

    @staticmethod
    def of(space: str | Space) -> Space:
        """Read the text of a space; a space is given back as it is.

        >>> Space.of("shift(3px) rotate(30)") == PAPER
        True
        >>> Space.of("shift(10%) zoom(0.9..1.1) brightness(0.2)").limits
        Traceback (most recent call last):
        ...
        ValueError: limits are relative to the image; call in_pixels(height, width) first
        """
        if isinstance(space, Space):
            return space
        if not isinstance(space, str):
            raise ValueError(
                f"a space is a text such as 'shift(3px) rotate(30)', not a {type(space).__name__}"
            )
        return Space(chain_of(space))

    @staticmethod
    def covering(transformation_sets: Iterable[Pose]) -> Space:
        """Make the smallest space that leads from any member of a transformation set to any other.

        This is the paper's construction (appendix A.1): the search set is (-Δ*, Δ*), where Δ* is
        the largest absolute value in each column of a pose that takes one member of a set to
        another member of the same set. Each set lists its members as poses of one common image.
        """
        chain, largest = RIGID, torch.zeros(len(RIGID.axes), dtype=torch.float64)
        for place, members in enumerate(transformation_sets):
            if place == 0:
                chain = members.chain
                largest = torch.zeros(len(chain.axes), dtype=torch.float64)
            pose = members.to(dtype=torch.float64)
            between = pose.inverse()[:, None].compose(then=pose[None, :])
            farthest = _nearest_turns(between).abs().amax((0, 1))
            largest = torch.maximum(largest, farthest)
        axes = [axis.in_pixels(1, 1) for axis in chain.axes]  # poses are, whatever the limits were
        limits = zip(axes, largest.tolist(), strict=True)
        return Space(chain.with_axes([replace(axis, low=-far, high=far) for axis, far in limits]))

    def __str__(self) -> str:
        return str(self.chain)

    def __repr__(self) -> str:
        return f"Space({str(self)!r})"

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the box, a column of a pose each."""
        return self.chain.axes

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """The limits of each axis, in the unit of poses."""
        if any(axis.unit == "%" for axis in self.axes):
            raise ValueError(
                "limits are relative to the image; call in_pixels(height, width) first"
            )
        return tuple((axis.low, axis.high) for axis in self.axes)

    def in_pixels(self, height: int, width: int) -> Space:
        """Resolve limits that are relative to the image's size.

        >>> str(Space.of("shift(12.5%) rotate(30)").in_pixels(height=224, width=320))
        'shift(40px, 28px) rotate(30)'
        """
        if all(axis.unit != "%" for axis in self.axes):
            return self
        resolved = [axis.in_pixels(height, width) for axis in self.axes]
        return replace(self, chain=self.chain.with_axes(resolved))

    def in_words(self) -> str:
        """Say how far images are changed.

        >>> PAPER.in_words()
        'shift by at most 3 px, rotate by at most 30 degrees'
        """
        parts = []
        for family in self.chain.families:
            limits = dict.fromkeys(axis.in_words for axis in family.axes)
            parts.append(f"{family.name} by {' and '.join(limits)}")
        return ", ".join(parts)

    def pose(self, **columns: Any) -> Pose:
        """Make poses from columns by name; those that are not named are zero.

        >>> Space.of("rotate zoom").pose(angle=[10, 20])
        Pose(angle=[10.0, 20.0] degrees, zoom=[0.0, 0.0] (log of a factor))
        """
        return Pose.made(self.chain, **columns)

    def zeros(self, *shape: int, device: torch.device | str | None = None) -> Pose:
        """Give the pose that changes nothing."""
        return Pose.zeros(*shape, chain=self.chain, device=device)

    def grid(self, counts: Sequence[int]) -> Pose:
        """Give evenly spaced poses, ends included: ``counts`` has a number for each axis.

        ``PAPER.grid((5, 5, 31))`` are the paper's 775 poses. A count of 1 gives the value 0.

        >>> PAPER.grid((2, 1, 3))[:4]
        Pose(dx=[-3.0, -3.0, -3.0, 3.0] px, dy=[0.0, 0.0, 0.0, 0.0] px, \
angle=[-30.0, 0.0, 30.0, -30.0] degrees)
        """
        self.check_counts(counts)
        assert self.limits
        values = [axis.spread(count) for axis, count in zip(self.axes, counts, strict=True)]
        parts = [part.flatten().float() for part in torch.meshgrid(*values, indexing="ij")]
        return Pose(torch.stack(parts, -1), self.chain)

    def check_counts(self, counts: Sequence[int]) -> None:
        """Check that a grid has a count for each axis."""
        if len(counts) != len(self.axes) or min(counts) < 1:
            names, usual = ", ".join(self.chain.column_of), "x".join(map(str, self.usual_counts()))
            raise ValueError(
                f"a grid over {self} needs a count of at least 1 for each of its axes ({names}), "
                f"as in grid-{usual}, but has {'x'.join(map(str, counts))}"
            )

    def usual_counts(self, most: int = 7500) -> tuple[int, ...]:
        """The counts of a grid that nobody gave counts for; the paper's for its space.

        Of one axis or two there are more of them, of an axis without room one. Not more than
        ``most`` poses in all, by default as many as in the paper's largest grid, if three values of
        each axis are not more: the finest axes get coarser first.

        >>> Space.of("shift rotate zoom brightness contrast").usual_counts()
        (5, 5, 5, 5, 3, 3)
        """
        least = _OF_FEW.get(sum(axis.low < axis.high for axis in self.axes), 1)
        counts = [max(axis.count, least) if axis.low < axis.high else 1 for axis in self.axes]
        while math.prod(counts) > most and max(counts) > _LEAST_COUNT:
            finest = max(range(len(counts)), key=lambda place: (counts[place], place))
            counts[finest] = max(_LEAST_COUNT, counts[finest] - 2)  # an odd number stays one
        return tuple(counts)

    def sample(
        self,
        *shape: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Pose:
        """Draw poses uniformly from the box."""
        poses = uniform(*shape, len(self.axes), generator=generator, device=device).sub_(0.5)
        # Plain numbers, not a tensor of limits: a CUDA graph cannot capture a copy from the host.
        for place, (low, high) in enumerate(self.limits):
            poses[..., place].mul_(high - low)
            if low != -high:  # clamped, as the sum may be rounded beyond a limit
                poses[..., place].add_((low + high) / 2).clamp_(low, high)
        return Pose(poses, self.chain)

    def project(self, pose: Pose) -> Pose:
        """Give the nearest pose in the box."""
        self._check(pose)
        parts = zip(pose.values.unbind(-1), self.limits, strict=True)
        return pose.like(torch.stack([part.clamp(*limits) for part, limits in parts], -1))

    def contains(self, pose: Pose) -> Tensor:
        """Say for each pose whether it lies in the box."""
        self._check(pose)
        parts = zip(pose.values.unbind(-1), self.limits, strict=True)
        return torch.stack([(part >= low) & (part <= high) for part, (low, high) in parts]).all(0)

    def fractions(self, pose: Pose) -> Tensor:
        """Give values as parts of the larger limit of their axis; without room to move, 0."""
        self._check(pose)
        parts = zip(pose.values.unbind(-1), self.axes, strict=True)
        return torch.stack([part / (axis.reach or 1.0) for part, axis in parts], -1)

    def _check(self, pose: Pose) -> None:
        if pose.chain.names != self.chain.names:
            raise ValueError(f"a pose of {pose.chain} is none of {self}: their families differ")

    def at_fractions(self, fractions: Tensor) -> Pose:
        """Give the pose that has these ``fractions``."""
        parts = zip(fractions.unbind(-1), self.axes, strict=True)
        return Pose(torch.stack([part * axis.reach for part, axis in parts], -1), self.chain)


def _nearest_turns(pose: Pose) -> Tensor:
    """Values with each angle that repeats as the smallest one that means the same."""
    columns = [
        column if axis.period is None else _nearest(column, axis.period)
        for axis, column in zip(pose.chain.axes, pose.values.unbind(-1), strict=True)
    ]
    return torch.stack(columns, -1)


def _nearest(column: Tensor, period: float) -> Tensor:
    return torch.remainder(column + period / 2, period) - period / 2


PAPER = Space()
"""The paper's space: translations of at most 3 px and rotations of at most 30 degrees."""
