"""Uniform draws for images: all at once, or for each what it gets in a run over all data.

Attacks draw for as many images as they are handed, and a run over all data hands them one chunk of
it after another. Who visits some images only, in any order, has to draw for the chunks in which
they lie, and to take what is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ByPlace", "Neighbours", "uniform"]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Images that are drawn for together, and those of them that are visited."""

    generator: torch.Generator
    """What draws for them, on the CPU."""
    count: int
    rows: Tensor
    """int64: which of them are visited."""
    visits: Tensor
    """int64: as which of all visited images, which are those of several neighbourhoods."""


class ByPlace(torch.Generator):
    """Draws for visited images what each gets among its neighbours, by ``uniform``.

    What is drawn from it in any other way is that of a plain generator.
    """

    neighbourhoods: Sequence[Neighbours] = ()

    @staticmethod
    def of(
        places: Tensor, *, of_images: int | None, size: int, begin: Callable[[int], torch.Generator]
    ) -> ByPlace:
        """Draw for the images at these places of so many, None for nobody knows how many.

        Neighbours are ``size`` images in a row; ``begin`` gives the generator of those that start
        there.
        """
        drawn, starts = ByPlace(), places // size * size
        drawn.manual_seed(begin(int(places[0])).initial_seed())
        visits = {start: (starts == start).nonzero()[:, 0] for start in starts.unique().tolist()}
        drawn.neighbourhoods = [
            Neighbours(
                begin(start),
                size if of_images is None else min(size, of_images - start),
                places[theirs] - start,
                theirs,
            )
            for start, theirs in visits.items()
        ]
        return drawn

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Draw numbers; the first dimension that has the size of the visited images is theirs."""
        visited = sum(len(each.visits) for each in self.neighbourhoods)
        if visited not in shape:  # for none of them, or for all
            return torch.rand(*shape, generator=self)
        along, drawn = shape.index(visited), torch.empty(*shape)
        for each in self.neighbourhoods:
            sizes = (*shape[:along], each.count, *shape[along + 1 :])
            theirs = torch.rand(*sizes, generator=each.generator).index_select(along, each.rows)
            drawn.index_copy_(along, each.visits, theirs)
        return drawn


def uniform(
    *shape: int,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw numbers from 0 to 1, as ``torch.rand``; attacks that do so draw for images by place."""
    device = device or (generator.device if generator is not None else None)
    if isinstance(generator, ByPlace):
        return generator.uniform(shape).to(device)
    return torch.rand(*shape, generator=generator, device=device)
