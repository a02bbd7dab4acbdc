"""The class of every answer: what was seen at a worst pose need not be asked again."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["SeenClasses"]


@dataclass(frozen=True)
class SeenClasses:
    """The classes that were seen so far."""

    answers: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """Of images by their rows: the severity, and the class of the largest logit."""

    def class_at(self, severities: Tensor) -> Tensor:
        """Give each image's class at its last answer of this severity; -1 where it has no such."""
        rows, values, classes = (torch.cat(parts) for parts in zip(*self.answers, strict=True))
        # By places alone: to select by a mask would wait for a GPU.
        places = torch.arange(len(rows), device=rows.device)
        its = torch.where(values == severities[rows], places, -1)
        last = torch.full_like(severities, -1, dtype=torch.int64)
        last = last.scatter_reduce(0, rows, its, "amax")
        return torch.where(last < 0, -1, classes[last])
