"""A penalty: one minus the cosine of the angle between the two vectors of logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from upright import Penalty, name_penalty

__all__ = ["Cosine"]


@dataclass(frozen=True)
class Cosine(Penalty):
    """Between 0 and 2, whatever the size of the logits."""

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return 1 - F.cosine_similarity(natural, transformed, dim=-1)


name_penalty("COS", Cosine(), weight=2.0)
