"""The weights that a recipe's network starts from, where these are not fresh.

They are those of a file, or of another run, by the names that the network has for them. Around a
network may stand what has no weights, such as its normalisation: a file need not know of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from upright.models.enlarged import Enlarged
from upright.normalised import Normalised
from upright.train.checkpoint import RunDirectory
from upright.train.network import plain_names
from upright.train.recipe import Recipe
from upright.train.weight_files import as_called_in, read_weights, weights_digest

__all__ = ["FreshLayer", "read_pretrained", "start_from_pretrained", "with_pretrained_digest"]

_COUNT = "num_batches_tracked"
"""What norms may count, and may do without."""
_MOST_NAMED = 4


class FreshLayer(UserWarning):
    """The last layer starts fresh, since the pretrained one has another number of classes."""


def read_pretrained(source: str) -> dict[str, Tensor]:
    """Read weights by name from a file, or from the folder of a run; runs no code."""
    if Path(source).is_dir():
        return plain_names(RunDirectory.open(Path(source)).trained())
    return read_weights(source)


def with_pretrained_digest(recipe: Recipe) -> Recipe:
    """Note in a recipe which weights it starts from; others than it means are an error."""
    if not recipe.pretrained:
        return recipe
    digest = weights_digest(read_pretrained(recipe.pretrained))
    if recipe.pretrained_digest not in ("", digest):
        raise ValueError(
            f"the weights in {recipe.pretrained} are not those that the recipe starts from; bring "
            "them back, or leave out pretrained_digest"
        )
    return replace(recipe, pretrained_digest=digest)


def start_from_pretrained(network: nn.Module, recipe: Recipe, classes: int) -> str:
    """Give a network the weights that its recipe starts from; say in a line what stays fresh."""
    weights = as_called_in(network, read_pretrained(recipe.pretrained))
    own = _part_with(network, weights).state_dict()
    fresh = _of_other_classes(own, weights, classes)
    if wrong := _differences(own, weights, fresh):
        raise ValueError(
            f"{recipe.pretrained} holds weights of another network than {recipe.model}: {wrong}"
        )
    if spoiled := [name for name, values in weights.items() if values.isnan().any()]:
        raise ValueError(f"{recipe.pretrained} has weights that are NaN: {_few(spoiled)}")
    with torch.no_grad():
        for name in own.keys() & weights.keys() - fresh:
            own[name].copy_(weights[name])
    if not fresh:
        return ""
    layers = ", ".join(sorted({name.rpartition(".")[0] or name for name in fresh}))
    theirs = f"{len(weights[min(fresh)])} in {recipe.pretrained}"
    return f"the last layer ({layers}) starts fresh: there are {classes} classes, and {theirs}"


def _part_with(network: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """The outermost part of a network that knows any of the weights by name; else all of it."""
    parts = (part for part in _inward(network) if part.state_dict().keys() & weights.keys())
    return next(parts, network)


def _inward(network: nn.Module) -> Iterator[nn.Module]:
    """A network, and what is inside of it where it only stands around another."""
    yield network
    if isinstance(network, Enlarged | Normalised) and isinstance(network.network, nn.Module):
        yield from _inward(network.network)


def _of_other_classes(
    own: Mapping[str, Tensor], weights: Mapping[str, Tensor], classes: int
) -> set[str]:
    """The tensors that have a row for each class, where the classes are of another number."""
    differing = {
        name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape
    }
    rows = {weights[name].shape[:1] for name in differing}
    by_class = all(
        own[name].shape[:1] == (classes,)
        and own[name].ndim == weights[name].ndim
        and own[name].shape[1:] == weights[name].shape[1:]
        for name in differing
    )
    return differing if by_class and len(rows) == 1 else set()


def _differences(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], fresh: set[str]) -> str:
    """Say which tensors do not fit, the first ones by name; empty where all do."""
    sizes = [
        f"{name} ({_size(weights[name])} instead of {_size(own[name])})"
        for name in own
        if name in weights and name not in fresh and own[name].shape != weights[name].shape
    ]
    found = {
        "it lacks": _missing(own, weights),
        "it has besides": _missing(weights, own),
        "it has in other sizes": sizes,
    }
    return "; ".join(f"{what} {_few(names)}" for what, names in found.items() if names)


def _missing(wanted: Iterable[str], given: Container[str]) -> list[str]:
    return [name for name in wanted if name not in given and name.rpartition(".")[2] != _COUNT]


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one number"
