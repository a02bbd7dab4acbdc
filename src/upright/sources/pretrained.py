"""A network as its source gives it, with what the source says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from upright.checks import Model
from upright.ensemble import ensemble
from upright.sources.preprocess import AS_IT_IS, Preprocess
from upright.train import FinishedRun, Recipe
from upright.warp import Fill

__all__ = ["Pretrained", "Trained"]


@dataclass(frozen=True)
class Trained:
    """How a network that classifies was trained here, and on what."""

    recipe: Recipe
    classes: tuple[str, ...]
    data_digest: str
    locnet_fill: Fill | None = None
    """What poses uncovered while the LocNet before it was trained; None where there is none."""


def _itself(model: Model) -> Model:
    return model


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A network, how it takes images, and what its outputs are called.

    What a source does not know is left out: nothing is done to images then, and names are empty.
    """

    network: Model
    preprocess: Preprocess = AS_IT_IS
    """As its source says."""
    classes: tuple[str, ...] = ()
    """Of its outputs, after the offset; several names of one have commas between them."""
    in_torch: bool = True
    """Whether torch computes it, in whichever precision it is told to; another runtime does not."""
    outside: Callable[[Model], Model] = _itself
    """What is done with the model that takes images in [0, 1], such as averaging it over poses."""
    members: tuple[Pretrained, ...] = ()
    """Of a mean: each takes images in its own way. The network is all of theirs."""
    trained: tuple[Trained, ...] = ()
    """Of its parts those that were trained here."""
    finished: Callable[[], FinishedRun] | None = None
    """Looks up the run that it is, or the runs, which are to have taken all their steps; None where
    a part of it is from elsewhere."""

    def model(self, told: Preprocess | None = None, *, device: torch.device | str = "cpu") -> Model:
        """Give the model from images in [0, 1] to logits.

        Args:
            told: what is said of it here, which goes before what its source says.
            device: where the network is.
        """
        if self.members:
            return self.outside(
                ensemble(*(each.model(told, device=device) for each in self.members))
            )
        around = (self.preprocess | (told or AS_IT_IS)).around(self.network)
        if isinstance(around, nn.Module) and around is not self.network:
            around = around.to(device)
        return self.outside(around)
