"""Which images a step sees and how they are augmented: functions of recipe and step alone.

Nothing is carried from step to step, so that a run continues from any step as if it had never
stopped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from upright.pose import Pose
from upright.ranks import ALONE, Part
from upright.seeds import seed_for
from upright.train.recipe import Recipe
from upright.warp import warp

__all__ = ["Batches", "augment"]


class Batches:
    """Shuffles the data anew for each epoch; what is left over at an epoch's end is skipped.

    The order of an epoch lies on the device: a copy from the host in every step costs more.
    """

    def __init__(self, images: int, recipe: Recipe, device: torch.device | str = "cpu") -> None:
        if images < recipe.batch:
            raise ValueError(f"{images} images do not fill a batch of {recipe.batch}")
        self._images, self._recipe, self._device = images, recipe, device
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def rows(self, step: int) -> Tensor:
        """Give the rows of the data that a step sees."""
        size = self._recipe.batch
        epoch, place = divmod(step, self._images // size)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(seed_for(self._recipe.seed, "epoch", epoch))
            order = torch.randperm(self._images, generator=generator)
            self._order = order.to(self._device, non_blocking=True)
            self._epoch = epoch
        return self._order[place * size : (place + 1) * size]


def augment(
    images: Tensor, recipe: Recipe, generator: torch.Generator, part: Part | None = None
) -> Tensor:
    """Mirror and shift images at random, as the recipe says.

    Of images that are a part of a batch, each gets what it gets in the whole batch.
    """
    part, device = part or ALONE.part(len(images)), images.device
    if recipe.flips:
        mirrored = torch.rand(part.whole, generator=generator, device=device) < 0.5
        mirrored = part.take(mirrored)
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    if recipe.max_shift:
        reach = recipe.max_shift
        size = (2, part.whole)
        shift = torch.randint(-reach, reach + 1, size, generator=generator, device=device)
        shift = part.take(shift, 1)
        images = warp(images, Pose.of(dx=shift[0], dy=shift[1]))
    return images
