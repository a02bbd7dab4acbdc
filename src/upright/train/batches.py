"""Which images a step sees and how they are augmented: functions of recipe and step alone.

Nothing is carried from step to step, so that a run continues from any step as if it had never
stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upright.data import LabelledImages
from upright.pose import Pose
from upright.seeds import seed_for
from upright.train.recipe import Recipe
from upright.triton_support import has_triton
from upright.uniform import drawn, uniform
from upright.warp import warp
from upright.window import Window

__all__ = [
    "Augmented",
    "Batches",
    "augmented_rows",
    "check_cutout",
    "mirrors_alone",
    "mixing_shares",
]


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


@dataclass(frozen=True, eq=False)
class Augmented:
    """Rows of the data, as a step sees them."""

    images: Tensor
    """In [0, 1]."""
    labels: Tensor
    rows: Tensor
    draws: Tensor | None
    """By which images are mirrored, one for each; None mirrors nothing."""

    @property
    def mirrored(self) -> Tensor | None:
        """Which images are; asked for by few, so that most steps do not compute it."""
        return None if self.draws is None else _are_mirrored(self.draws)


def augmented_rows(
    data: LabelledImages,
    rows: Tensor,
    recipe: Recipe,
    generator: torch.Generator,
) -> Augmented:
    """Take rows of the data: mirrored, changed, shifted and with holes, at random by the recipe."""
    draws = _mirror_draws(recipe, generator, len(rows))
    if _has_kernel(data):
        from upright.train.batch_kernels import take_rows

        images, labels = take_rows(data.images, data.labels, rows, draws)
    else:
        images, labels = _mirrored(data.images[rows].float() / 255, draws), data.labels[rows]
    return Augmented(_after_flips(images, recipe, generator), labels, rows, draws)


def mixing_shares(recipe: Recipe, generator: torch.Generator, count: int) -> Tensor:
    """Draw how much of another image is mixed into each."""
    return recipe.mixup * uniform(count, generator=generator)


def _mirror_draws(recipe: Recipe, generator: torch.Generator, count: int) -> Tensor | None:
    """By which images are mirrored, one for each; None mirrors nothing."""
    return uniform(count, generator=generator) if recipe.flips else None


def _are_mirrored(draws: Tensor) -> Tensor:
    """Half of them, and the same half as in the kernel."""
    return draws < 0.5


def _mirrored(images: Tensor, draws: Tensor | None) -> Tensor:
    if draws is None:
        return images
    return torch.where(_are_mirrored(draws)[:, None, None, None], images.flip(-1), images)


def _after_flips(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    for step in (_jittered, _shifted, _cut):
        images = step(images, recipe, generator)
    return images


def mirrors_alone(recipe: Recipe) -> bool:
    """Whether images come as they are or mirrored: none of the steps above does anything."""
    return recipe.jitter is None and not recipe.max_shift and not recipe.cutout


def _jittered(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    if recipe.jitter is None:
        return images
    space = recipe.jitter.in_pixels(*images.shape[-2:])
    return warp(images, space.sample(len(images), generator=generator))


def _shifted(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    if not recipe.max_shift:
        return images
    reach = recipe.max_shift

    def shifts(count: int, of: torch.Generator) -> Tensor:
        return torch.randint(-reach, reach + 1, (2, count), generator=of, device=of.device).T

    dx, dy = drawn(shifts, len(images), generator).unbind(1)
    return warp(images, Pose.of(dx=dx, dy=dy))


def check_cutout(recipe: Recipe, images: Tensor) -> None:
    """Check that a hole leaves something of every image to be seen."""
    height, width = Window.of(images, recipe.view).size
    if recipe.cutout >= min(height, width):
        raise ValueError(
            f"a cutout of {recipe.cutout} px may blacken all that is seen of an image, {height} x "
            f"{width} px; give fewer pixels, such as {min(height, width) // 4}"
        )


def _cut(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Blacken a square of each image; near an edge, the part of it that is inside."""
    if not recipe.cutout:
        return images
    holes = []
    for size in images.shape[-2:]:
        middle = size * uniform(len(images), generator=generator)[:, None]
        place = torch.arange(size, device=images.device) + 0.5
        holes.append((place - middle).abs() <= recipe.cutout / 2)
    rows, columns = holes
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


def _has_kernel(data: LabelledImages) -> bool:
    """Whether rows can be taken by one kernel."""
    contiguous = data.images.is_contiguous() and data.labels.is_contiguous()
    return data.images.is_cuda and contiguous and has_triton()
