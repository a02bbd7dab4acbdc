"""A penalty: one minus the cosine of the angle between the two vectors of logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from upright import Penalty, name_penalty

__all__ = ["Cosine"]


@dataclass(frozen=True)
class Cosine(Penalty):
    """Between 0 and 2, whatever the size of the logits; what lies below ``margin`` is free."""

    margin: float = 0.0

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        distance = 1 - F.cosine_similarity(natural, transformed, dim=-1)
        return (distance - self.margin).clamp(min=0)


name_penalty("COS", Cosine(), weight=2.0)
