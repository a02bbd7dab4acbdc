"""The regression behind the paper's two-stage network: find the pose of a transformed image.

``LocNet(black)`` and ``LocNet(reflection)`` are objectives like others: each image is moved by a
random pose, with that fill, and the network's outputs regress its columns, in the paper dx, dy and
the angle, each as a fraction of its limit. The loss is the mean squared error of these fractions.
Black fill shows the edges of the moved image, from which the pose can be read off; reflection does
not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.checks import Model
from upright.families import Spatial
from upright.logits import ask
from upright.objective.draws import Draws
from upright.objective.loss import LossTerms, RegularizedLoss
from upright.objective.options import alike
from upright.objective.product import Objective
from upright.pose import Pose
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling, check_fill
from upright.window import Window

__all__ = [
    "AnyObjective",
    "LocNet",
    "LocNetLoss",
    "as_objective",
    "known_objective",
    "located_pose",
    "make_loss",
    "parse_objective",
]

_TEXT = re.compile(r"LocNet\s*\(\s*(#?\w+)\s*\)", re.IGNORECASE)


@dataclass(frozen=True)
class LocNet:
    """Regress the pose of a randomly moved image; ``fill`` is what the pose uncovers."""

    fill: Fill = "black"

    def __post_init__(self) -> None:
        check_fill(self.fill)

    def __str__(self) -> str:
        return f"LocNet({self.fill})"

    def canonical(self) -> LocNet:
        """Give the one that stands for all that train alike, as ``Objective`` does: itself."""
        return self

    def check_space(self, space: Space) -> None:
        """Check that a warp can undo its poses."""
        families = space.chain.families
        if still := [each.name for each in families if not isinstance(each, Spatial)]:
            raise ValueError(
                f"a LocNet finds poses that a warp undoes, but {', '.join(still)} moves no points; "
                "give a space of shift, rotate, zoom and others that do"
            )


AnyObjective = Objective | LocNet
"""What a network can be trained by."""


def parse_objective(text: str, *, weight: float | None = None) -> AnyObjective:
    """Read any objective, the paper's notation or ``LocNet(fill)``."""
    if match := _TEXT.fullmatch(text.strip()):
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


class LocNetLoss(nn.Module):
    """The loss of a ``LocNet``, called as ``RegularizedLoss`` is; labels are not looked at."""

    def __init__(
        self,
        objective: LocNet,
        space: Space | str = PAPER,
        *,
        interpolation: Interpolation = "bilinear",
        view: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.objective, self.space, self.draws = objective, Space.of(space), Draws(generator)
        objective.check_space(self.space)
        self.resampling = Resampling(objective.fill, interpolation, view)

    def forward(
        self,
        model: Model,
        images: Tensor,
        labels: Tensor | None = None,
        *,
        search_model: Model | None = None,
    ) -> LossTerms:
        """Move each image by a random pose, and compare it with what the network says of it."""
        del labels, search_model
        space = self.space.in_pixels(*Window.of(images, self.resampling.view).size)
        pose = space.sample(len(images), generator=self.draws.next(images.device))
        found = ask(model, self.resampling(images, pose))
        error = F.mse_loss(found.float(), space.fractions(pose))
        return LossTerms(
            total=error,
            natural_loss=None,
            transformed_loss=None,
            penalty=None,
            natural_accuracy=None,
            transformed_accuracy=None,
            poses={},
        )


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


def located_pose(outputs: Tensor, space: Space) -> Pose:
    """Read the pose from a network's outputs, N x axes; the space's limits are in pixels."""
    return space.at_fractions(outputs)
