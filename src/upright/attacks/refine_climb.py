"""Refinement that ends in gradient steps, for scores that have a gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from upright.attacks.base import Rounds, RoundSearch, WorstCase, attack_name, pick_worst, worse_of
from upright.attacks.pgd import SpatialPGD
from upright.attacks.refine import Boxes, RefiningSearch
from upright.pose import Pose
from upright.space import Space

__all__ = ["RefiningClimb"]

_CLIMB = SpatialPGD()
_SHARE = 4
"""About one part in so many of the passes is for climbs."""


@dataclass(frozen=True)
class RefiningClimb(RoundSearch):
    """Refines (see ``RefiningSearch``), then climbs from good poses as ``SpatialPGD`` does.

    ``passes`` are those of both together. A climb starts from a pose that refinement would have
    divided next. All poses on its way are candidates, so it never ends lower than it began.
    """

    passes: int = 775
    shifted: bool = False

    def __post_init__(self) -> None:
        least = 1 + _CLIMB.passes_per_image
        if self.passes < least:
            raise ValueError(f"{self} needs at least {least} passes: one climb, and where to begin")

    def __str__(self) -> str:
        return f"refine-{self.passes}{'+rnd' if self.shifted else ''}+s-pgd"

    @property
    def climbs(self) -> bool:
        return True

    @property
    def passes_per_image(self) -> int:
        return self.passes

    def check_space(self, space: Space) -> None:
        _CLIMB.check_space(space)

    def begin(self, space: Space, count: int, *, generator: torch.Generator) -> Rounds:
        climbs = max(1, self.passes // (_SHARE * _CLIMB.passes_per_image))
        refining = RefiningSearch(self.passes - climbs * _CLIMB.passes_per_image, self.shifted)
        return _Climbs(refining.begin(space, count, generator=generator), climbs)


@dataclass
class _Climbs(Rounds):
    """Boxes until they have no more passes, then climbs side by side."""

    boxes: Boxes
    climbs: int
    here: Pose | None = None
    """Where the climbs are, climbs x images, once they began."""
    steps: int = 0
    """Taken so far."""
    highest: WorstCase | None = None
    """On the way of all climbs."""

    def propose(self) -> Pose | None:
        if self.here is None:
            if (poses := self.boxes.propose()) is not None:
                return poses
            self.here = self.boxes.best(self.climbs)
        if self.steps > _CLIMB.steps:
            return None
        climbs_on = self.steps < _CLIMB.steps
        self.here = self.here.like(self.here.values.detach().requires_grad_(climbs_on))
        return self.here

    def learn(self, scores: Tensor) -> None:
        if self.here is None:
            self.boxes.learn(scores)
            return
        here = self.here.like(self.here.values.detach())
        found = pick_worst(here, scores.detach())
        self.highest = found if self.highest is None else worse_of(self.highest, found)
        if self.steps < _CLIMB.steps:
            space = self.boxes.ranges.space
            self.here = space.project(_CLIMB.stepped(space, self.here, scores))
        self.steps += 1

    def restrict(self, rows: Tensor) -> Rounds:
        boxes, here, highest = self.boxes.restrict(rows), self.here, self.highest
        if here is not None:
            here = here[:, rows.to(here.values.device)]
        if highest is not None:
            at = rows.to(highest.score.device)
            highest = replace(highest, pose=highest.pose[at], score=highest.score[at])
        return replace(self, boxes=boxes, here=here, highest=highest)

    def worst(self) -> WorstCase:
        worst = self.boxes.worst()
        return worst if self.highest is None else worse_of(worst, self.highest)

    def ceiling(self) -> Tensor:
        ceiling = self.boxes.ceiling()
        return ceiling if self.highest is None else ceiling.maximum(self.highest.score.to(ceiling))


@attack_name(
    "refine-N+s-pgd (as in refine-1000+s-pgd), refine-N+rnd+s-pgd",
    r"refine-(\d+)(\+rnd)?\+s-?pgd",
    about="the last passes are gradient steps, for models that have gradients",
)
def _refine_and_climb(passes: str, shifted: str | None) -> RefiningClimb:
    return RefiningClimb(int(passes), shifted is not None)
