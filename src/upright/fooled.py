"""Which poses fool which images, and what follows from that without another pass.

All of it counts right and wrong answers at poses that were tried. Between them a smaller pose may
fool an image, and accuracy over all of a box may be lower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from upright.pose import Pose
from upright.space import Space

__all__ = [
    "Curve",
    "FooledPoses",
    "SmallestPoses",
    "box_sizes",
    "expected_worst_of",
    "pack_bits",
    "smallest_first",
]

_DIGITS = 6
"""Of a size: more are those of a pose in float32, and would tell apart what is as large."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracies as fractions, and where they are reached. Between two places the first holds."""

    at: Tensor
    """float64, rising."""
    accuracy: Tensor
    """float64."""

    def __call__(self, at: float) -> float:
        """Give the accuracy at a place.

        >>> Curve(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.25]))(0.7)
        0.25
        """
        if not at >= self.at[0]:
            raise ValueError(f"the curve begins at {float(self.at[0]):g}, after {at:g}")
        return float(self.accuracy[int((self.at <= at).sum()) - 1])


@dataclass(frozen=True, eq=False)
class SmallestPoses:
    """For each image the smallest pose that fools it, of those that were tried."""

    pose: Pose
    """NaN where nothing fools an image."""
    size: Tensor
    """float64: its size, see ``box_sizes``; infinite where nothing fools an image."""


@dataclass(frozen=True, eq=False)
class FooledPoses:
    """Which poses fool which images, one bit for each; all images were tried at the same poses.

    The poses' chain has limits in pixels: sizes are parts of them.
    """

    poses: Pose
    bits: Tensor
    """uint8, images x ceil(poses / 8), the first pose in the highest bit."""
    natural_fooled: Tensor
    """bool, one for each image: the answer to it as it is, is wrong."""

    def unpack(self) -> Tensor:
        """Give a bool tensor, images x poses."""
        bits = np.unpackbits(self.bits.numpy(), axis=1, count=len(self.poses))
        return torch.from_numpy(bits).bool()

    @cached_property
    def smallest(self) -> SmallestPoses:
        """The smallest pose that fools each image: of those as large, the one of smallest Euclidean
        norm, and of those the first by its values.

        An image as it is has size 0, whether the poses have the identity or not.
        """
        poses, fooled = self._with_identity()
        order = smallest_first(poses)
        in_order = fooled[:, order]
        first, never = order[in_order.byte().argmax(1)], ~in_order.any(1)
        values = poses.values[first].masked_fill(never[:, None], math.nan)
        sizes = box_sizes(poses)[first].masked_fill(never, math.inf)
        return SmallestPoses(poses.like(values), sizes)

    @cached_property
    def by_size(self) -> Curve:
        """Accuracy under all poses of a size of at most s, for every s at which it can change.

        That is in a box which reaches s times as far. From 0, natural accuracy, to 1, that under
        all poses; where these leave out the identity, under all poses and it, which every box has.
        """
        sizes = box_sizes(self._with_identity()[0]).unique()
        smallest = self.smallest.size.sort().values
        fallen = torch.searchsorted(smallest, sizes, right=True)
        return Curve(sizes, 1 - fallen.double() / len(smallest))

    @cached_property
    def worst_of(self) -> Curve:
        """What accuracy is expected under k of the poses, drawn for each image without replacement.

        For every k: from 1, the mean accuracy over poses, to all of them, the accuracy under all.
        """
        return self._worst_of(replacement=False)

    @cached_property
    def worst_of_replaced(self) -> Curve:
        """What accuracy is expected under k of the poses, drawn for each image with replacement.

        For every k up to the number of poses, where some are still to be drawn.
        """
        return self._worst_of(replacement=True)

    @cached_property
    def agreement(self) -> Tensor:
        """For each image the share of poses whose answer is right, as is that to it as it is.

        float64; NaN where that one is wrong: two wrong answers may agree or not, and which class
        was seen is not known here.
        """
        right = 1 - self._counts.double() / len(self.poses)
        return right.masked_fill(self.natural_fooled, math.nan)

    @property
    def consistency(self) -> float:
        """The mean ``agreement`` over the images that are right as they are; NaN without any.

        Where only the largest logit counts, right answers agree, so that this is how often the
        answer stays the natural one.
        """
        return float(self.agreement.nanmean())

    @cached_property
    def _counts(self) -> Tensor:
        """How many poses fool each image."""
        return self.unpack().sum(1)

    def _worst_of(self, *, replacement: bool) -> Curve:
        total = len(self.poses)
        accuracy = expected_worst_of(self._counts, total, replacement=replacement)
        return Curve(torch.arange(1, total + 1).double(), accuracy)

    def _with_identity(self) -> tuple[Pose, Tensor]:
        """All that was tried: images as they are too, where the poses do not have them."""
        if (self.poses.values == 0).all(-1).any():
            return self.poses, self.unpack()
        zero = self.poses.like(torch.zeros_like(self.poses.values[:1]))
        fooled = torch.cat((self.natural_fooled[:, None], self.unpack()), 1)
        return Pose.cat([zero, self.poses]), fooled


def pack_bits(fooled: Tensor) -> Tensor:
    """Pack a bool tensor, images x poses, for ``FooledPoses``."""
    eights = F.pad(fooled, (0, -fooled.shape[1] % 8)).unflatten(1, (-1, 8))
    values = 2 ** torch.arange(7, -1, -1, device=fooled.device)
    packed: Tensor = (eights * values).sum(-1)
    return packed.to(torch.uint8)


def box_sizes(poses: Pose) -> Tensor:
    """Give how much of the box of limits it takes to contain each pose: float64.

    That is the largest of its values as parts of the larger limit of their axis, whichever way.

    >>> box_sizes(Space.of("shift(3px) rotate(30)").pose(dx=[0, 1.5], angle=[-30, 6])).tolist()
    [1.0, 0.5]
    """
    return _fractions(poses).abs().amax(-1)


def smallest_first(poses: Pose) -> Tensor:
    """Give the order of poses by size, then by Euclidean norm of their fractions, then by value."""
    norms = _fractions(poses).norm(dim=-1).numpy().round(_DIGITS)
    columns = poses.values.numpy().T[::-1]
    return torch.from_numpy(np.lexsort((*columns, norms, box_sizes(poses).numpy())))


def _fractions(poses: Pose) -> Tensor:
    space = Space(poses.chain)
    assert space.limits  # which raises where they are relative to the image
    return space.fractions(poses.to(dtype=torch.float64)).round(decimals=_DIGITS)


def expected_worst_of(fooled: Tensor, poses: int, *, replacement: bool) -> Tensor:
    """Give the accuracy to expect under k poses drawn at random, for k = 1 to ``poses``: float64.

    ``fooled`` counts the poses that fool each image. An image is right under k poses if none of
    them is among these: where m of M fool it and no pose is drawn twice, with a chance of
    C(M - m, k) / C(M, k), else of (1 - m / M)^k. Both are products of k parts of at most 1, which
    lose no digits.
    """
    counts, images = fooled.unique(return_counts=True)
    right, chances = (poses - counts).double(), images.double() / len(fooled)
    accuracies = []
    for drawn in range(poses):
        again = right / poses if replacement else (right - drawn).clamp(min=0) / (poses - drawn)
        chances = chances * again
        accuracies.append(chances.sum())
    return torch.stack(accuracies)
