"""Training steps on a GPU, recorded and plain, on images of noise."""

from __future__ import annotations

import torch

from upright.data import LabelledImages
from upright.train import PLAIN, Recipe, Speed
from upright.train.learner import Learner

__all__ = ["noise", "plain_and_recorded"]


def noise(count: int = 512) -> LabelledImages:
    """Images and labels that mean nothing."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (count,), generator=generator)
    return LabelledImages(images, labels, tuple("0123456789"))


def plain_and_recorded(recipe: Recipe) -> tuple[Learner, Learner]:
    """Two learners of one recipe after five steps: in a plain loop, and as a CUDA graph alone."""
    cuda = torch.device("cuda")
    plain = Learner(recipe, noise(), cuda, PLAIN)
    recorded = Learner(recipe, noise(), cuda, Speed(compile=False, kernels=False))
    for step in range(5):  # in turns: both find the same convolutions the fastest
        plain.step(step)
        recorded.step(step)
    return plain, recorded
