"""What a rank needs to take its part of a step, so that all together take the step of one process.

Poses, flips and shifts are drawn for the whole batch on every rank, and each takes its part: what
is drawn for an image does not depend on how many ranks there are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from upright.checks import Model
from upright.ranks import Part, Ranks
from upright.train.recipe import Recipe
from upright.uniform import Draw, OfImages

__all__ = ["OfPart", "average_buffers", "batch_part", "synchronised"]


def batch_part(recipe: Recipe, ranks: Ranks) -> Part:
    """Give this rank's part of a batch; every rank needs an image."""
    if recipe.batch < ranks.size:
        raise ValueError(
            f"a batch of {recipe.batch} images cannot be shared by {ranks.size} processes; "
            "start fewer, or take a larger batch"
        )
    return ranks.part(recipe.batch)


class OfPart(OfImages):
    """Draws for a whole batch, or for several copies of it, and gives what is a part's."""

    part: Part

    @staticmethod
    def on(device: torch.device, part: Part) -> torch.Generator:
        """Make what draws for this part; of all of a batch a plain generator does."""
        if len(part) == part.whole:
            return torch.Generator(device)
        made = OfPart(device)
        made.part = part
        return made

    def drawn(self, draw: Draw, count: int) -> Tensor:
        times, rest = divmod(count, len(self.part))
        if rest:
            return draw(count, self)
        whole = draw(times * self.part.whole, self)
        return self.part.take(whole.unflatten(0, (times, self.part.whole)), 1).flatten(0, 1)


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
