"""Models of several networks: each can be changed, and nothing between them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator

from torch import nn

from upright.checks import Model

__all__ = ["Change", "Composed", "each_network", "networks_of"]

Change = Callable[[Model], Model]
"""Gives a network in another form, such as in half precision."""


class Composed(nn.Module, abc.ABC):
    """A model that is made of networks, and of what is done between them."""

    @abc.abstractmethod
    def each_network(self, change: Change) -> Composed:
        """Give the same model of changed networks, in evaluation mode."""


def each_network(model: Model, change: Change) -> Model:
    """Change the networks of a model that is composed of some, or else the model itself."""
    return model.each_network(change) if isinstance(model, Composed) else change(model)


def networks_of(model: Model) -> Iterator[nn.Module]:
    """Give the networks of such a model, or else the model itself, as they are."""
    if isinstance(model, Composed | nn.ModuleList):
        for part in model.children():
            yield from networks_of(part)
    elif isinstance(model, nn.Module):
        yield model
