"""The network of a recipe: one of this package by its name, or one of the user's own code.

Own code is ``FILE.py:FACTORY`` or ``package.module:FACTORY``, a function or a class. It is called
with ``classes`` and ``channels`` where it has parameters of these names, after the recipe's seed
was set: what it draws are the first weights.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from torch import nn

from upright.data import LabelledImages
from upright.factories import FILE, MODULE, find_factory, need_file
from upright.logits import ask
from upright.models import build_network
from upright.train.recipe import Recipe

__all__ = ["build", "check_outputs", "code_digest", "is_own_code", "with_code_digest"]


def is_own_code(model: str) -> bool:
    """Whether a recipe's network is code of the user's own."""
    return FILE.fullmatch(model) is not None or MODULE.fullmatch(model) is not None


def build(model: str, *, classes: int, channels: int) -> nn.Module:
    """Build a recipe's network, with fresh weights."""
    factory = find_factory(model)
    if factory is None:
        return build_network(model, classes=classes, channels=channels)
    if isinstance(factory.value, nn.Module):
        raise ValueError(
            f"{model} is a network that is made already; name its class, or a function that makes "
            "it, so that the seed determines its weights"
        )
    network = factory.make(classes=classes, channels=channels)
    if not isinstance(network, nn.Module):
        raise ValueError(
            f"{model} gives a {type(network).__name__}, which has no weights to train; give an "
            "nn.Module"
        )
    return network


def check_outputs(
    network: nn.Module, recipe: Recipe, data: LabelledImages, device: torch.device
) -> None:
    """Check, by one image, that a network of the user's own has an output for each class."""
    classes = len(recipe.outputs(data.classes))
    with torch.no_grad():
        logits = ask(network.eval(), data.head(1).as_float().to(device))
    if logits.shape[1] != classes:
        raise ValueError(
            f"{recipe.model} gives {logits.shape[1]} outputs, but {classes} are to be trained; let "
            "it have a parameter `classes`, or this number"
        )


def code_digest(model: str) -> str:
    """SHA-256 of the file of a user's own network; empty for one of this package."""
    if match := FILE.fullmatch(model):
        return hashlib.sha256(need_file(match[1]).read_bytes()).hexdigest()
    factory = find_factory(model)
    return "" if factory is None else factory.digest


def with_code_digest(recipe: Recipe) -> Recipe:
    """Note in a recipe which code it is about to run; code that it does not mean is an error."""
    digest = code_digest(recipe.model)
    if recipe.model_digest not in ("", digest):
        raise ValueError(
            f"the code of {recipe.model} is not that of the recipe; bring the old file back, or "
            "leave out model_digest"
        )
    return replace(recipe, model_digest=digest)
