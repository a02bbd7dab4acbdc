"""Where entries are looked for: in the folders of ``UPRIGHT_ZOO``, then in the package."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from upright.callers import warn_caller
from upright.checks import SuspiciousInput
from upright.train.teacher_network import TEACHERS, TeacherNetwork
from upright.zoo.card import Card
from upright.zoo.entry import Entry

__all__ = ["SHIPPED", "card", "find", "folders", "load", "names"]

SHIPPED = Path(__file__).parent / "entries"
"""What comes with the package."""


def folders() -> tuple[Path, ...]:
    """The folders with entries; of two entries of one name, the one in the earlier folder counts.

    ``UPRIGHT_ZOO`` is a list of folders, separated as in ``PATH``.
    """
    told = os.environ.get("UPRIGHT_ZOO", "").split(os.pathsep)
    own = [Path(folder) for folder in told if folder]
    for folder in own:
        if not folder.is_dir():
            warn_caller(f"UPRIGHT_ZOO names {folder}, which is no folder", SuspiciousInput)
    return (*own, SHIPPED)


def names() -> tuple[str, ...]:
    """The models that can be loaded, as in ``cifar10/kl-rob-wo10``."""
    return tuple(sorted({entry.name for folder in folders() for entry in Entry.all_in(folder)}))


def find(name: str) -> Entry:
    """Find an entry by name."""
    entries = [Entry(folder, name) for folder in folders()]
    for entry in entries:
        if entry.card_file.is_file():
            return entry
    there = names()
    known = f"it has {', '.join(there)}" if there else "there is none in this installation"
    raise ValueError(
        f"the zoo has no model {name!r}: {known}; UPRIGHT_ZOO names other folders to look into"
    )


def card(name: str) -> Card:
    """Read the card of a model."""
    return find(name).card()


def load(name: str, *, device: torch.device | str = "cpu") -> nn.Module:
    """Load a network with its trained weights, in evaluation mode.

    It takes images in [0, 1], N x C x H x W, and gives logits.

    Args:
        name: one of ``names()``, as in ``cifar10/kl-rob-wo10``.
        device: where the network is to compute.
    """
    return find(name).load(device=device)


@TEACHERS.register("zoo:DATASET/NAME", r"zoo:(.*)")
def _as_teacher(name: str) -> TeacherNetwork:
    entry = find(name)
    card = entry.card()
    return TeacherNetwork(card.recipe, card.classes, card.image_shape[0], entry.load)
