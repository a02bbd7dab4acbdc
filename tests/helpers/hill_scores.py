"""Scores whose highest point is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from upright import Pose, Space


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass
class Hills:
    """A score that falls with the distance from another top for each image, in ranges of axes."""

    space: Space
    tops: Tensor
    """Images x axes, as parts of the ranges from 0 to 1."""
    ripples: float = 0.0
    """Waves all over the hill, so that it has many tops."""
    asked: list[Tensor] = field(default_factory=list)

    def __call__(self, pose: Pose) -> Tensor:
        self.asked.append(pose.values)
        low, high = torch.tensor(self.space.limits, dtype=torch.float64).unbind(-1)
        parts = (pose.values.double() - low) / (high - low).where(high > low, 1.0)
        away = parts - self.tops
        waves = (1 - torch.cos(18 * away)).sum(-1)
        return -away.square().sum(-1) - self.ripples * waves

    @property
    def tried(self) -> Tensor:
        return torch.cat(self.asked)


def hills(text: str, count: int = 40, *, corners: bool = False, ripples: float = 0.0) -> Hills:
    space = Space.of(text)
    tops = torch.rand(count, len(space.axes), generator=draws(1), dtype=torch.float64)
    return Hills(space, tops.round() if corners else tops, ripples)
