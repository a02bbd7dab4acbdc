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

    def class_at(self, severities: Tensor) -> Tensor | None:
        """Give each image's class at its answer of this severity; None where one has no such."""
        if not self.answers:
            return None
        rows, values, classes = (torch.cat(parts) for parts in zip(*self.answers, strict=True))
        # Of all answers at once: each look at a mask waits for a GPU.
        its = values == severities[rows]
        found = torch.full_like(severities, -1, dtype=torch.int64)
        found[rows[its]] = classes[its]
        return found if (found >= 0).all() else None
