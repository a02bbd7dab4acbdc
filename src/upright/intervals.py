"""How sure the accuracies are that some images gave, and how sure two models are apart.

Of two models on the same images each image is a pair of answers, and what counts is where one of
them alone is right. That tells models apart that an interval for each by itself would not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Difference", "Interval", "difference", "wilson_interval"]

_Z = 1.959963984540054
"""Within so many standard deviations 95 % of a normal distribution lie."""


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval of a fraction, or of the difference of two."""

    low: float
    high: float


def wilson_interval(successes: int, trials: int) -> Interval:
    """Give Wilson's score interval at 95 %, which stays sensible near 0 and 1."""
    share, spread = successes / trials, _Z * _Z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    # At either end the bound is exact, and rounding would leave a speck beside it.
    return Interval(
        0.0 if successes == 0 else middle - half, 1.0 if successes == trials else middle + half
    )


@dataclass(frozen=True)
class Difference:
    """By how much the accuracy of one model is above that of another."""

    images: int
    first_alone: int
    """On how many images the first is right and the second is not."""
    second_alone: int

    @property
    def share(self) -> float:
        """As a fraction of the images, above 0 where the first is better."""
        return (self.first_alone - self.second_alone) / self.images

    @property
    def interval(self) -> Interval:
        """Where it lies for all images of this kind, at 95 %: that of Bonett and Price (2012).

        One image more on either side keeps it sensible where models hardly differ.
        """
        images = self.images + 2
        one, other = (self.first_alone + 1) / images, (self.second_alone + 1) / images
        half = _Z * math.sqrt((one + other - (one - other) ** 2) / images)
        return Interval(max(one - other - half, -1.0), min(one - other + half, 1.0))


def difference(first: Tensor, second: Tensor) -> Difference:
    """Hold two models against each other by which images they get right.

    Args:
        first: bool, one for each image, such as ``evaluation.attacks["grid-775"].correct``.
        second: the same of the other model, on the same images in the same order.

    >>> found = difference(torch.tensor([True] * 9), torch.tensor([True] * 6 + [False] * 3))
    >>> (found.first_alone, found.second_alone, round(found.share, 2))
    (3, 0, 0.33)
    """
    first, second = torch.as_tensor(first), torch.as_tensor(second)
    if not first.dtype == second.dtype == torch.bool or first.ndim != 1 or not len(first):
        raise ValueError(
            "models are compared by one bool for each image; give what evaluations have as "
            "natural_correct, or as correct of an attack"
        )
    if first.shape != second.shape:
        raise ValueError(
            f"one model was asked about {len(first)} images and the other about {len(second)}; "
            "evaluate both on the same ones"
        )
    return Difference(
        images=len(first),
        first_alone=int((first & ~second).sum()),
        second_alone=int((second & ~first).sum()),
    )
