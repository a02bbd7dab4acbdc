"""A model that notes what it is asked, and a batch to ask it about."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["CLASSES", "COUNT", "IMAGES", "LABELS", "SEARCHES", "NotingModel"]

COUNT, CLASSES = 3, 5
IMAGES = torch.rand(COUNT, 2, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([4, 0, 2])

SEARCHES = ["AT(rob, Wo-4)", "KL(mix, Wo-3×2)", "L2(rob, S-PGD)", "KL-C(mix, S-PGD; restarts=2)"]
"""Objectives of which each searches in another way."""


class NotingModel(nn.Module):
    """A small network that notes each batch it is shown, and may fail at one of them."""

    def __init__(self, *, channels: int = 2, fails_at: int | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(channels, 4, 3, stride=2, padding=1)
            self.norm = nn.BatchNorm2d(4)
            self.dropout = nn.Dropout(0.5)
            self.linear = nn.Linear(4 * 4 * 4, CLASSES)
        self.fails_at = fails_at
        self.seen: list[Tensor] = []
        self.answers: list[Tensor] = []
        self.modes: list[set[bool]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images.detach())
        self.modes.append({module.training for module in self.modules()})
        if len(self.seen) == self.fails_at:
            raise RuntimeError("the model fails here")
        features = self.dropout(torch.relu(self.norm(self.conv(images))).flatten(1))
        answer: Tensor = self.linear(features)
        self.answers.append(answer.detach())
        return answer
