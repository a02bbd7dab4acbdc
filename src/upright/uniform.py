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

__all__ = ["ByPlace", "Neighbours", "OfImages", "drawn", "uniform"]


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


Draw = Callable[[int, torch.Generator], Tensor]
"""Draws for so many images, which are the first dimension."""


class OfImages(torch.Generator):
    """Draws for some images what each of them gets among more of them."""

    def drawn(self, draw: Draw, count: int) -> Tensor:
        """Give what is drawn for these images; as a plain generator where it is for no images."""
        raise NotImplementedError  # a generator's class takes no abstract methods


def drawn(draw: Draw, count: int, generator: torch.Generator) -> Tensor:
    """Draw for so many images, by whichever generator: what each gets is that of a run over all."""
    if isinstance(generator, OfImages):
        return generator.drawn(draw, count)
    return draw(count, generator)


class ByPlace(OfImages):
    """Draws for visited images what each gets among its neighbours in the data."""

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

    def drawn(self, draw: Draw, count: int) -> Tensor:
        if count != sum(len(each.visits) for each in self.neighbourhoods):
            return draw(count, self)
        parts = [draw(each.count, each.generator)[each.rows] for each in self.neighbourhoods]
        return torch.cat(parts)[torch.cat([each.visits for each in self.neighbourhoods]).argsort()]


def uniform(
    *shape: int,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw numbers from 0 to 1 in float32; where they are for images, these come first.

    Never in a default of the user's: of other digits other numbers are drawn.
    """
    kind = torch.float32
    if generator is None or not shape:
        return torch.rand(*shape, generator=generator, device=device, dtype=kind)

    def draw(count: int, of: torch.Generator) -> Tensor:
        return torch.rand(count, *shape[1:], generator=of, device=of.device, dtype=kind)

    return drawn(draw, shape[0], generator).to(device or generator.device)
