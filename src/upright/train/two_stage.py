"""The paper's two-stage network: a LocNet finds the pose, a warp undoes it, a classifier looks.

This is the variant that the paper calls naive: the image that was transformed is warped once more,
so what the first warp cropped stays lost. The other one reads the attack's own pose, which no
defence can: see ``upright.evaluation.oracle``.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from torch import Tensor

from upright.checks import Model
from upright.composed import Change, Composed, each_network
from upright.evaluation import Locator
from upright.evaluation.oracle import change_locator
from upright.families import Chain, Size, Spatial
from upright.identity import as_module
from upright.logits import ask
from upright.objective import located_pose
from upright.pose import Pose
from upright.space import Space
from upright.train.checkpoint import RunDirectory, load_network
from upright.train.recipe import Recipe
from upright.warp import Fill, warp

__all__ = ["RunLocator", "StnPlus", "load_locator", "make_locator"]


class RunLocator(Composed):
    """A network that was trained as a LocNet, as a function from images to poses."""

    def __init__(self, network: Model, space: Space, fill: Fill) -> None:
        super().__init__()
        self.network, self.space = as_module(network), space
        self.fill: Fill = fill

    def forward(self, images: Tensor) -> Pose:
        space = self.space.in_pixels(*images.shape[-2:])
        return located_pose(ask(self.network, images).to(images.dtype), space)

    def each_network(self, change: Change) -> RunLocator:
        return RunLocator(each_network(self.network, change), self.space, self.fill).eval()


class StnPlus(Composed):
    """Undoes the pose that the locator finds, by a warp with this fill, and classifies."""

    def __init__(self, locator: Locator, classifier: Model, fill: Fill = "black") -> None:
        super().__init__()
        self.locator = locator
        self.classifier: Model = as_module(classifier)
        self.fill: Fill = fill

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(warp(images, _inverse(self.locator(images)), fill=self.fill))

    def each_network(self, change: Change) -> StnPlus:
        locator = change_locator(self.locator, change)
        return StnPlus(locator, each_network(self.classifier, change), self.fill).eval()


class _Inverse(Spatial):
    """What undoes a chain, by the same numbers: for chains that are no group."""

    name: ClassVar[str] = "inverse"
    projective: ClassVar[bool] = True

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain.axes)
        self.chain = chain

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        return self.chain.inverse_matrix(values, size)

    def inverse_matrix(self, values: Tensor, size: Size) -> Tensor:
        return self.chain.matrix(values, size)


def _inverse(pose: Pose) -> Pose:
    """Give the pose that undoes another."""
    chain = pose.chain
    if not chain.is_spatial:
        raise ValueError(
            f"the locator finds poses of {' '.join(chain.names)}, which a warp cannot undo; let it "
            "find shift, rotate, zoom and others that move points"
        )
    return pose.inverse() if chain.is_group else Pose(pose.values, Chain((_Inverse(chain),)))


def make_locator(recipe: Recipe, network: Model) -> RunLocator:
    """Make a locator of a LocNet's recipe and its network."""
    fill = recipe.locnet_fill
    if fill is None:
        raise ValueError(f"{recipe.method} finds no poses; a locator is made of a LocNet")
    return RunLocator(network, recipe.space, fill)


def load_locator(path: Path) -> RunLocator:
    """Load the newest weights of a run with the objective ``LocNet``."""
    recipe = RunDirectory.open(path).recipe
    if not recipe.is_locnet:
        raise ValueError(
            f"{path} was trained with {recipe.method}, which finds no poses; name a run of "
            "LocNet(black) or LocNet(reflection) first, then the classifier"
        )
    return make_locator(recipe, load_network(path))
