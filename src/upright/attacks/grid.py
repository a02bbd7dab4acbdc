"""Grid search: every pose of an even grid over the space.

The strongest attack of the paper, which calls the accuracy under it the grid accuracy. Its space
has three dimensions only, so that a search of all of it can be paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from upright.attacks.base import CandidateSearch, attack_name
from upright.pose import Pose
from upright.space import Space

__all__ = ["GridSearch", "usual_grid"]


@dataclass(frozen=True)
class GridSearch(CandidateSearch):
    """Tries every pose of a grid of ``counts`` values of each axis of the space, ends included."""

    shared: ClassVar[bool] = True

    counts: tuple[int, ...] = (5, 5, 31)

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1:
            raise ValueError(f"a grid needs counts of at least 1, but got {self.counts}")

    def __str__(self) -> str:
        if self.counts in _PAPER_GRIDS.values():
            return f"grid-{self.passes_per_image}"
        return "grid-" + "x".join(map(str, self.counts))

    @property
    def passes_per_image(self) -> int:
        return math.prod(self.counts)

    def check_space(self, space: Space) -> None:
        space.check_counts(self.counts)

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        del count, generator  # the same for all images, and nothing is random
        return space.grid(self.counts)[:, None]


def usual_grid(space: Space, most: int = 7500) -> GridSearch:
    """The grid over a space for which nobody gave counts; over the paper's, the paper's.

    It has at most so many poses: of more axes than that allows, an attack has to be named.

    >>> print(usual_grid(Space()), usual_grid(Space.of("shift rotate zoom")))
    grid-775 grid-5x5x31x5
    """
    grid = GridSearch(space.usual_counts(most))
    if grid.passes_per_image > most:
        raise ValueError(
            f"{space} has {len(space.axes)} axes, which is too many for a grid that nobody gave "
            "counts for; name an attack, such as wo-100"
        )
    return grid


_PAPER_GRIDS: dict[str, tuple[int, ...]] = {"775": (5, 5, 31), "7500": (10, 10, 75)}


@attack_name(
    "grid-775, grid-7500, grid-AxBxC (as in grid-5x5x31)",
    r"grid-(\d+(?:x\d+)*)",
    about="the paper's grids, or a count for each axis",
)
def _grid(counts: str) -> GridSearch:
    return GridSearch(_PAPER_GRIDS.get(counts) or tuple(map(int, counts.lower().split("x"))))
