"""Networks by name. A new network is one new file in this folder with one decorated function."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from torch import nn

from upright.registry import Registry, UnknownNameError, is_ours

__all__ = [
    "NETWORKS",
    "build_network",
    "builder_of",
    "is_network",
    "network",
    "network_forms",
]

Build = Callable[..., nn.Module]


NETWORKS: Registry[Build] = Registry("network")
"""What builds networks from their names; those of this package once ``network_forms`` was asked."""


def network(form: str, pattern: str, *, about: str = "") -> Callable[[Build], Build]:
    """Register a network: what ``pattern`` captures of its name goes to the decorated function.

    The function also takes the keywords ``classes`` and ``channels``, and returns a module that
    maps float images in [0, 1] to logits: normalisation is its own business. ``form`` is how
    messages and help write the name, ``about`` what help says of it.
    """

    def register(build: Build) -> Build:
        if not is_ours(build):
            _import_all()  # so that a name of this package's is taken already
        return NETWORKS.register(form, pattern, about=about)(build)

    return register


def build_network(name: str, *, classes: int = 10, channels: int = 3) -> nn.Module:
    """Build a network from its name, with fresh weights.

    >>> sum(weight.numel() for weight in build_network("resnet32").parameters())
    464154
    """
    _import_all()
    try:
        found = NETWORKS.find(name)
    except UnknownNameError as error:
        raise ValueError(f"{error}, and to train your own, FILE.py:FACTORY") from None
    return found.value(*found.groups, classes=classes, channels=channels)


def is_network(name: str) -> bool:
    """Whether ``build_network`` knows a name."""
    _import_all()
    return any(entry.pattern.fullmatch(name) for entry in NETWORKS.entries)


def builder_of(name: str) -> Build | None:
    """Give the function that builds a network of this name; None where there is none."""
    _import_all()
    try:
        return NETWORKS.find(name).value
    except UnknownNameError:
        return None


def network_forms() -> list[str]:
    """List how networks are named."""
    _import_all()
    return list(NETWORKS)


def _import_all() -> None:
    package = importlib.import_module("upright.models")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith("_kernels"):
            continue  # needs Triton, which is not everywhere
        importlib.import_module(f"upright.models.{module.name}")
