"""Spatial PGD: sign-gradient ascent on the pose, with projection onto the space.

Weak as an attack, strong as a defence: so the paper finds, and so did Engstrom et al. (2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from upright.attacks.base import Attack, Score, WorstCase, attack_name, worse_of
from upright.attacks.gradient import gradient_of, scored
from upright.pose import Pose
from upright.space import Space

__all__ = ["SpatialPGD"]


@dataclass(frozen=True)
class SpatialPGD(Attack):
    """Climbs ``steps`` times from a random pose and takes where it ends.

    ``step_size`` has a number for each axis, in its unit; without, it is each axis's own, in the
    paper's space 0.03 px and 0.3 degrees. With ``restarts`` above 1, the best of several climbs is
    taken.
    """

    steps: int = 5
    step_size: tuple[float, ...] | None = None
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.steps < 0 or self.restarts < 1:
            raise ValueError(
                f"steps must be at least 0 and restarts at least 1, "
                f"but are {self.steps} and {self.restarts}"
            )
        if not all(0 <= size < math.inf for size in self.step_size or ()):
            raise ValueError(f"sizes of a step must be at least 0, but are {self.step_size}")

    def __str__(self) -> str:
        return "s-pgd" if self == SpatialPGD() else repr(self)

    @classmethod
    def options(cls) -> Mapping[str, str]:
        return {"steps": "steps", "restarts": "restarts", "step": "step_size"}

    @property
    def passes_per_image(self) -> int:
        return self.restarts * (self.steps + 1)

    @property
    def passes_of_worst_pose(self) -> int:
        return self.steps if self.restarts == 1 else self.passes_per_image

    def check_space(self, space: Space) -> None:
        self._sizes(space)

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        starts = space.sample(count, self.restarts, generator=generator)
        climbs = (self._climbed(score, space, starts[:, each]) for each in range(self.restarts))
        return reduce(worse_of, climbs)

    def worst_pose(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> Pose:
        """Find the worst pose; a single climb needs no score of where it ends: one pass less."""
        if self.restarts == 1:
            return self._climb(score, space, space.sample(count, generator=generator))
        return super().worst_pose(score, space, count, generator=generator)

    def _climbed(self, score: Score, space: Space, pose: Pose) -> WorstCase:
        """Climb, and score where it ends."""
        pose = self._climb(score, space, pose)
        with torch.no_grad():
            value = score(pose)
        return WorstCase(pose.to(value.device), value, (self.steps + 1) * len(value))

    def _climb(self, score: Score, space: Space, pose: Pose) -> Pose:
        for _ in range(self.steps):
            pose = space.project(self._step(score, space, pose))
        return pose

    def _step(self, score: Score, space: Space, pose: Pose) -> Pose:
        here = pose.like(pose.values.detach().requires_grad_())
        return self.stepped(space, here, scored(score, here))

    def stepped(self, space: Space, pose: Pose, scores: Tensor) -> Pose:
        """Take one step up from poses, by what they were scored; it may leave the space."""
        ways, sizes = gradient_of(scores, pose).sign(), self._sizes(space)
        moves = zip(pose.values.detach().unbind(-1), ways.unbind(-1), sizes, strict=True)
        return pose.like(torch.stack([at.add(way, alpha=size) for at, way, size in moves], -1))

    def _sizes(self, space: Space) -> tuple[float, ...]:
        sizes = self.step_size or tuple(axis.step for axis in space.axes)
        if len(sizes) != len(space.axes):
            raise ValueError(
                f"{space} has {len(space.axes)} axes, but {len(sizes)} sizes of a step are given; "
                "give one for each axis, or none"
            )
        return sizes


@attack_name("s-pgd", r"s-?pgd", about="gradient ascent, for models that have gradients")
def _spatial_pgd() -> SpatialPGD:
    return SpatialPGD()
