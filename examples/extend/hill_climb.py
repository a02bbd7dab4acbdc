"""An attack that looks at scores as it goes: keep a random step whenever it makes things worse."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from upright.attacks import Attack, Score, WorstCase, attack_name
from upright.space import Space

__all__ = ["HillClimb"]


@dataclass(frozen=True)
class HillClimb(Attack):
    """Starts anywhere, takes ``steps`` random steps of at most a quarter of the box.

    Needs no gradient, so that it also works on ONNX models.
    """

    steps: int = 20

    def __str__(self) -> str:
        return f"hill-{self.steps}"

    @property
    def passes_per_image(self) -> int:
        return self.steps + 1

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        best = space.sample(count, generator=generator)
        value = score(best)
        for _ in range(self.steps):
            move = space.sample(count, generator=generator).values / 4
            tried = space.project(best.like(best.values + move))
            found = score(tried)
            better = (found > value).to(tried.device)
            best = best.like(torch.where(better[:, None], tried.values, best.values))
            value = torch.maximum(value, found)
        return WorstCase(best, value, self.passes_per_image * count)


@attack_name("hill-N (as in hill-20)", r"hill-(\d+)", about="N steps uphill")
def _hill_climb(steps: str) -> HillClimb:
    return HillClimb(int(steps))
