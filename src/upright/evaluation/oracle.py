"""An oracle, not a defence: the paper's STN+ ``trick``, which reads the attack's own pose.

The pose that a locator finds in the transformed image is subtracted from the attack's pose, and the
original image is warped by what remains. No classifier that is handed an image could do that: it
takes the attack's parameters and the original. It shows what warping an image twice costs, and says
nothing about how accurate a network is under attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from upright.attacks import CandidateSearch, parse_attack
from upright.checks import Model
from upright.evaluation.result import Interval, wilson_interval
from upright.pose import Pose
from upright.space import PAPER, TransformSpace
from upright.warp import Fill, warp

__all__ = ["ORACLE", "Locator", "OracleResult", "oracle"]

ORACLE = "oracle, not a defence: it reads the attack's own pose"
"""Goes with every figure of it that is shown."""

Locator = Callable[[Tensor], Pose]
"""Any callable from images to the pose by which each was moved."""


@dataclass(frozen=True, eq=False)
class OracleResult:
    """What the oracle reaches. Tensors are bool, one for each image, in the order of the data."""

    attack: str
    natural_correct: Tensor
    correct: Tensor
    """Correctly classified under every pose that was tried."""

    def __repr__(self) -> str:
        figures = f"natural {self.natural_accuracy:.4f}, {self.attack} {self.accuracy:.4f}"
        return f"OracleResult({figures}; {ORACLE})"

    @property
    def natural_accuracy(self) -> float:
        return float(self.natural_correct.double().mean())

    @property
    def natural_interval(self) -> Interval:
        return wilson_interval(int(self.natural_correct.sum()), len(self.correct))

    @property
    def accuracy(self) -> float:
        return float(self.correct.double().mean())

    @property
    def interval(self) -> Interval:
        return wilson_interval(int(self.correct.sum()), len(self.correct))


@torch.no_grad()
def oracle(
    locator: Locator,
    classifier: Model,
    images: Tensor,
    labels: Tensor,
    *,
    attack: str = "grid-775",
    space: TransformSpace = PAPER,
    fill: Fill = "black",
    batch_size: int = 256,
    seed: int = 0,
) -> OracleResult:
    """Measure the oracle; images are float in [0, 1], where the classifier computes.

    Args:
        locator: finds the pose of moved images, such as ``upright.sources.load_locator`` loads.
        classifier: from images to logits.
        images: the originals, N x C x H x W.
        labels: their classes.
        attack: one that lists its poses beforehand, such as a grid or worst-of-k.
        space: the poses that it searches.
        fill: what a pose uncovers.
        batch_size: images at once.
        seed: of the poses that an attack draws.
    """
    search = parse_attack(attack)
    if not isinstance(search, CandidateSearch):
        raise ValueError(f"{attack} does not list its poses; use a grid, wo-k or rnd")
    generator = torch.Generator().manual_seed(seed)
    poses = search.candidates(
        space.in_pixels(*images.shape[-2:]), len(images), generator=generator
    ).stack()
    poses = poses.expand(-1, len(images), 3).to(images)
    outcomes = []
    for rows in torch.arange(len(images)).split(batch_size):
        batch = _Batch(locator, classifier, images[rows], labels[rows].to(images.device), fill)
        outcomes.append(
            (batch.correct(torch.zeros_like(poses[0, rows])), batch.all(poses[:, rows]))
        )
    natural, attacked = (torch.cat(parts).cpu() for parts in zip(*outcomes, strict=True))
    return OracleResult(str(search), natural, attacked)


@dataclass(frozen=True)
class _Batch:
    locator: Locator
    classifier: Model
    images: Tensor
    labels: Tensor
    fill: Fill

    def correct(self, pose: Tensor) -> Tensor:
        """Whether each image is classified correctly under its pose, N x 3."""
        found = self.locator(warp(self.images, Pose.unstack(pose), fill=self.fill)).stack()
        remaining = Pose.unstack(pose - found)
        logits = self.classifier(warp(self.images, remaining, fill=self.fill))
        return logits.argmax(1) == self.labels

    def all(self, poses: Tensor) -> Tensor:
        """Whether it is so under every pose; an image that was fooled is not tried again."""
        standing = torch.arange(len(self.images), device=self.images.device)
        for pose in poses:
            if not len(standing):
                break
            rest = replace(self, images=self.images[standing], labels=self.labels[standing])
            standing = standing[rest.correct(pose[standing])]
        correct = torch.zeros(len(self.images), dtype=torch.bool, device=self.images.device)
        return correct.index_fill(0, standing, True)
