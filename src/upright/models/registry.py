"""Networks by name. A new network is one new file in this folder with one decorated function."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

__all__ = ["build_network", "network", "network_forms"]

Build = Callable[..., nn.Module]


@dataclass(frozen=True)
class _Network:
    form: str
    pattern: re.Pattern[str]
    build: Build


_NETWORKS: list[_Network] = []


def network(form: str, pattern: str) -> Callable[[Build], Build]:
    """Register a network: what ``pattern`` captures of its name goes to the decorated function.

    The function also takes the keywords ``classes`` and ``channels``, and returns a module that
    maps float images in [0, 1] to logits: normalisation is its own business. ``form`` is how error
    messages write the name.
    """

    def register(build: Build) -> Build:
        _NETWORKS.append(_Network(form, re.compile(pattern), build))
        return build

    return register


def build_network(name: str, *, classes: int = 10, channels: int = 3) -> nn.Module:
    """Build a network from its name, with fresh weights.

    >>> sum(weight.numel() for weight in build_network("resnet32").parameters())
    464154
    """
    _import_all()
    for known in _NETWORKS:
        if match := known.pattern.fullmatch(name):
            return known.build(*match.groups(), classes=classes, channels=channels)
    forms = ", ".join(network_forms())
    raise ValueError(
        f"no network is called {name!r}; the names are {forms}, and to train your own, "
        "FILE.py:FACTORY"
    )


def network_forms() -> list[str]:
    """List how networks are named."""
    _import_all()
    return [known.form for known in _NETWORKS]


def _import_all() -> None:
    package = importlib.import_module("upright.models")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith("_kernels"):
            continue  # needs Triton, which is not everywhere
        importlib.import_module(f"upright.models.{module.name}")
