"""An oracle, not a defence: the paper's STN+ ``trick``, which reads the attack's own pose.

The pose that a locator finds in the transformed image is subtracted from the attack's pose, and the
original image is warped by what remains. No classifier that is handed an image could do that: it
takes the attack's parameters and the original. It shows what warping an image twice costs, and says
nothing about how accurate a network is under attack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from upright.checks import Model
from upright.composed import Change, Composed, each_network
from upright.evaluation.score import Move
from upright.identity import as_module
from upright.pose import Pose
from upright.warp import Resampling

__all__ = ["ORACLE", "Locator", "Oracle", "change_locator", "move_for", "oracle_in"]

ORACLE = "oracle, not a defence: it reads the attack's own pose"
"""Goes with every figure of it that is shown."""

Locator = Callable[[Tensor], Pose]
"""Any callable from images to the pose by which each was moved."""


class Oracle(Composed):
    """A classifier, and a locator that shows it what no attack leaves; for ``evaluate`` alone.

    The classifier takes images to logits, the locator moved images to their poses, as what
    ``upright.sources.load_locator`` loads does.
    """

    def __init__(self, locator: Locator, classifier: Model) -> None:
        super().__init__()
        self.training = False  # of itself: in which mode its networks are is their own affair
        self.locator = locator
        self.classifier: Model = as_module(classifier)

    def forward(self, images: Tensor) -> Tensor:
        """Classify images that ``move`` gave."""
        return self.classifier(images)

    def each_network(self, change: Change) -> Oracle:
        locator = change_locator(self.locator, change)
        return Oracle(locator, each_network(self.classifier, change)).eval()

    def move(self, images: Tensor, pose: Pose, resampling: Resampling) -> Tensor:
        """Warp images by what is left of a pose once the locator's is subtracted; as ``warp``."""
        moved = resampling(images, pose)
        found = self.locator(moved.flatten(0, -4))
        if found.chain.names != pose.chain.names:
            raise ValueError(
                f"the locator finds poses of {found.chain}, but the attack has those of "
                f"{pose.chain}; give both the same families"
            )
        seen = found.values.reshape(*moved.shape[:-3], -1)
        return resampling(images, pose.like(pose.values.to(seen) - seen))


def oracle_in(model: Model) -> Oracle | None:
    """Give the oracle that a model is, which shows itself images; None for any other callable."""
    return model if isinstance(model, Oracle) else None


def move_for(model: Model, resampling: Resampling) -> Move:
    """Give what shows a model images under poses; an oracle sees to that itself."""
    oracle = oracle_in(model)
    return resampling if oracle is None else partial(oracle.move, resampling=resampling)


def change_locator(locator: Locator, change: Change) -> Locator:
    """Change the networks of a locator that is made of some; any other callable stays."""
    return locator.each_network(change) if isinstance(locator, Composed) else locator
