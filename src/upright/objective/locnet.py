"""The regression behind the paper's two-stage network: find the pose of a transformed image.

``LocNet(black)`` and ``LocNet(reflection)`` are objectives like others: each image is moved by a
random pose, with that fill, and the network's outputs regress its columns, in the paper dx, dy and
the angle, each as a fraction of its limit. The loss is the mean squared error of these fractions.
Black fill shows the edges of the moved image, from which the pose can be read off; reflection does
not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.checks import Model
from upright.families import Spatial
from upright.logits import ask
from upright.objective.draws import Draws
from upright.objective.loss import LossTerms
from upright.pose import Pose
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling, check_fill
from upright.window import Window

__all__ = ["LocNet", "LocNetLoss", "located_pose"]


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


def located_pose(outputs: Tensor, space: Space) -> Pose:
    """Read the pose from a network's outputs, N x axes; the space's limits are in pixels."""
    return space.at_fractions(outputs)
