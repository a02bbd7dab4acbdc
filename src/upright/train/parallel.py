"""What a rank needs to take its part of a step, so that all together take the step of one process.

Poses, flips and shifts are drawn for the whole batch on every rank, and each takes its part: what
is drawn for an image does not depend on how many ranks there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from upright.checks import Model
from upright.pose import Pose
from upright.ranks import Part, Ranks
from upright.space import Space
from upright.train.recipe import Recipe

__all__ = ["PartOfSpace", "average_buffers", "batch_part", "part_of_space", "synchronised"]


def batch_part(recipe: Recipe, ranks: Ranks) -> Part:
    """Give this rank's part of a batch; every rank needs an image."""
    if recipe.batch < ranks.size:
        raise ValueError(
            f"a batch of {recipe.batch} images cannot be shared by {ranks.size} processes; "
            "start fewer, or take a larger batch"
        )
    return ranks.part(recipe.batch)


@dataclass(frozen=True, kw_only=True, repr=False)
class PartOfSpace(Space):
    """A space that draws for a whole batch, and gives the draws for a part of it."""

    part: Part

    def sample(
        self,
        *shape: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Pose:
        """Draw for a number of images that is the part's, or several times that."""
        times = shape[0] // len(self.part)
        whole = (times * self.part.whole, *shape[1:])
        drawn = super().sample(*whole, generator=generator, device=device)
        by_time = drawn.values.unflatten(0, (times, self.part.whole))
        return drawn.like(self.part.take(by_time, 1).flatten(0, 1))


def part_of_space(space: Space, part: Part) -> Space:
    """Let a space draw for this part of the batch."""
    if len(part) == part.whole:
        return space
    return PartOfSpace(chain=space.chain, part=part)


def synchronised(model: Model, ranks: Ranks) -> Model:
    """Let gradients be averaged over all ranks as they are computed."""
    if ranks.alone:
        return model
    assert isinstance(model, nn.Module)
    return DistributedDataParallel(model)


@torch.no_grad()
def average_buffers(model: nn.Module, part: Part, ranks: Ranks) -> None:
    """Give all ranks the mean of their buffers, the running statistics of batch norms above all."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if ranks.alone or not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers]) * part.fraction
    means = ranks.sum(flat).split([buffer.numel() for buffer in buffers])
    for buffer, mean in zip(buffers, means, strict=True):
        buffer.copy_(mean.view_as(buffer))
