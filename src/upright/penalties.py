"""Distances between what a model says of an image and of its transformed copy.

Each takes the logits of the originals and of the copies and gives one value for each pair. Leading
axes broadcast, so that many copies of one original are compared in one call. Gradients flow through
both sides.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

__all__ = ["KL", "L2", "Penalty", "kl_divergence", "penalties_of", "squared_distance"]


def squared_distance(natural: Tensor, transformed: Tensor, *, scale: float = 0.25) -> Tensor:
    """Give the squared Euclidean distance of the logits, times ``scale``."""
    return scale * (natural - transformed).square().sum(-1)


def kl_divergence(natural: Tensor, transformed: Tensor) -> Tensor:
    """Give the divergence KL(softmax(natural) || softmax(transformed)), in nats."""
    log_p, log_q = F.log_softmax(natural, -1), F.log_softmax(transformed, -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


class Penalty(abc.ABC):
    """A distance with its options, as part of an objective.

    The fields of a dataclass are its options in the notation: ``L2(rob, Wo-10; scale=1)``.
    """

    @classmethod
    def options(cls) -> Mapping[str, str]:
        """Say which fields the notation has options for, by their names there: all of them."""
        kind: Any = cls
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        return {field.name: field.name for field in fields if field.init}

    @abc.abstractmethod
    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        """Give one value for each pair."""


def penalties_of(penalty: Penalty, natural: Tensor, transformed: Tensor) -> Tensor:
    """Give the value of each pair; an answer of another shape, which a mean would hide, is refused.

    ``natural`` broadcasts to ``transformed``.
    """
    values: object = penalty(natural, transformed)
    if not isinstance(values, Tensor) or values.shape != transformed.shape[:-1]:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"{penalty} gave {shape} for logits of {tuple(transformed.shape)}, but a penalty gives "
            "one value for each pair: sum over the last axis"
        )
    return values


@dataclass(frozen=True)
class L2(Penalty):
    """Squared Euclidean distance of the logits; the authors' program divides it by 4."""

    scale: float = 0.25

    def __post_init__(self) -> None:
        if not self.scale >= 0:
            raise ValueError(f"scale is {self.scale:g}, but must be at least 0: what differs costs")

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return squared_distance(natural, transformed, scale=self.scale)


@dataclass(frozen=True)
class KL(Penalty):
    """Divergence of the softmaxes.

    The paper writes KL(f(x'), f(X)), which is ``direction="transformed"``; its numbers were made
    with KL(f(X), f(x')), ``direction="natural"``.
    """

    direction: Literal["natural", "transformed"] = "natural"

    def __post_init__(self) -> None:
        if self.direction not in ("natural", "transformed"):
            raise ValueError(f"direction {self.direction!r} is neither 'natural' nor 'transformed'")

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        if self.direction == "transformed":
            natural, transformed = transformed, natural
        return kl_divergence(natural, transformed)
