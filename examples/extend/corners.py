"""An attack that lists its poses beforehand: the zero pose and the eight corners of the box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from upright.attacks import CandidateSearch, attack_name
from upright.pose import Pose
from upright.space import Space

__all__ = ["CornerSearch"]


@dataclass(frozen=True)
class CornerSearch(CandidateSearch):
    """Nine passes where the grid takes 775: a quick upper bound of the grid accuracy."""

    shared: ClassVar[bool] = True  # all images try the same poses

    def __str__(self) -> str:
        return "corners"

    @property
    def passes_per_image(self) -> int:
        return 9

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        del count, generator  # the same for every image, and nothing is random
        return Pose.cat([space.zeros(1), space.grid((2, 2, 2))])[:, None]


@attack_name("corners", "corners")
def _corners() -> CornerSearch:
    return CornerSearch()
