"""Any objective, from its text to its loss: the paper's notation or a LocNet."""

from __future__ import annotations

import re

import torch

from upright.objective.locnet import LocNet, LocNetLoss
from upright.objective.loss import RegularizedLoss
from upright.objective.options import alike
from upright.objective.product import Objective
from upright.space import Space
from upright.warp import Interpolation

__all__ = ["AnyObjective", "as_objective", "known_objective", "make_loss", "parse_objective"]

_LOCNET = re.compile(r"LocNet\s*\(\s*(#?\w+)\s*\)", re.IGNORECASE)

AnyObjective = Objective | LocNet
"""What a network can be trained by."""


def parse_objective(text: str, *, weight: float | None = None) -> AnyObjective:
    """Read any objective, the paper's notation or ``LocNet(fill)``."""
    if match := _LOCNET.fullmatch(text.strip()):
        return LocNet(match[1])
    return Objective.parse(text, weight=weight)


def as_objective(given: AnyObjective | str) -> AnyObjective:
    """Give an objective as its text says it: without what means nothing, such as λ of no penalty.

    So objectives that train alike by their text are equal. One of which the text does not tell
    everything is refused.
    """
    read = parse_objective(str(given))
    attacks = [getattr(each, "attack", None) for each in (given, read)]
    if not isinstance(given, str) and not alike(*attacks):
        raise ValueError(
            f"{given} does not tell {attacks[0]} from {attacks[1]}: let what its attack_name "
            "captures, or its options, say all of it"
        )
    return read


def known_objective(name: str) -> Objective | None:
    """Read a name that may be anybody's, as those in records are; None where it is no objective."""
    try:
        return Objective.parse(name)
    except ValueError:
        return None


def make_loss(
    objective: AnyObjective,
    space: Space,
    *,
    interpolation: Interpolation,
    view: int | None,
    generator: torch.Generator,
) -> RegularizedLoss | LocNetLoss:
    """Make the loss of any objective, for images and labels that have been checked."""
    if isinstance(objective, LocNet):
        return LocNetLoss(
            objective, space, interpolation=interpolation, view=view, generator=generator
        )
    return RegularizedLoss(
        objective, space, interpolation=interpolation, view=view, generator=generator, check=False
    )
