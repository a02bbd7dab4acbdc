"""Random search: the worst of k random poses (Engstrom et al. 2017, "worst-of-k")."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from upright.attacks.base import CandidateSearch, attack_name
from upright.pose import Pose
from upright.space import Space

__all__ = ["RandomSearch"]


@dataclass(frozen=True)
class RandomSearch(CandidateSearch):
    """Takes the worst of ``tries`` poses, drawn anew for each image and try from the whole box.

    With one try this is data augmentation, the paper's ``rnd``.
    """

    tries: int = 10

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"a random search needs at least 1 try, but got {self.tries}")

    def __str__(self) -> str:
        return "rnd" if self.tries == 1 else f"wo-{self.tries}"

    @property
    def passes_per_image(self) -> int:
        return self.tries

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        # Image by image, so that fewer images have the first of the draws of more.
        poses = space.sample(count, self.tries, generator=generator)
        return poses.like(poses.values.transpose(0, 1))


@attack_name("rnd", "rnd", about="a random pose")
def _random() -> RandomSearch:
    return RandomSearch(1)


@attack_name("wo-K (as in wo-10)", r"wo-(\d+)", about="the worst of K random poses")
def _worst_of(tries: str) -> RandomSearch:
    return RandomSearch(int(tries))
