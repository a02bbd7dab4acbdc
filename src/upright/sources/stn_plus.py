"""The paper's two-stage network: a LocNet finds the pose, a warp undoes it, a classifier looks.

``stn-plus:LOCNET,CLASSIFIER`` names it, each a folder of a run of ``upright train``, the first with
the objective ``LocNet(black)`` or ``LocNet(reflection)``, the second in the paper with ``std*``.
This is the variant that the paper calls naive: the image that was transformed is warped once more,
so what the first warp cropped stays lost. The other one reads the attack's own pose, which no
defence can: see ``upright.evaluation.oracle``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from upright.checks import Model
from upright.evaluation import Locator, Oracle
from upright.families import Chain, Size, Spatial
from upright.logits import ask
from upright.objective import LocNet, located_pose
from upright.pose import Pose
from upright.sources.registry import model_source
from upright.sources.run import load_run
from upright.space import Space
from upright.train import RunDirectory, load_network
from upright.warp import Fill, warp

__all__ = ["STN_PLUS", "RunLocator", "StnPlus", "each_network", "load_locator", "load_stn_plus"]

STN_PLUS = re.compile(r"stn-plus:([^,]+),([^,]+)")
"""Its name, and in it those of the two runs."""


class RunLocator(nn.Module):
    """A network that was trained as a LocNet, as a function from images to poses."""

    def __init__(self, network: Model, space: Space, fill: Fill) -> None:
        super().__init__()
        self.network, self.space = network, space
        self.fill: Fill = fill

    def forward(self, images: Tensor) -> Pose:
        space = self.space.in_pixels(*images.shape[-2:])
        return located_pose(ask(self.network, images).to(images.dtype), space)


class StnPlus(nn.Module):
    """Undoes the pose that the locator finds, by a warp with this fill, and classifies."""

    def __init__(self, locator: Locator, classifier: Model, fill: Fill = "black") -> None:
        super().__init__()
        self.locator, self.classifier = locator, classifier
        self.fill: Fill = fill

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(warp(images, _inverse(self.locator(images)), fill=self.fill))


class _Inverse(Spatial):
    """What undoes a chain, by the same numbers: for chains that are no group."""

    name: ClassVar[str] = "inverse"
    projective: ClassVar[bool] = True

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain.axes)
        self.chain = chain

    def matrix(self, values: Tensor, size: Size) -> Tensor:
        return self.chain.inverse(values, size)

    def inverse(self, values: Tensor, size: Size) -> Tensor:
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


def each_network(model: Model, change: Callable[[Model], Model]) -> Model:
    """Change the networks of a two-stage model, and nothing between them; or else the model."""
    if not isinstance(model, StnPlus | Oracle):
        return change(model)
    locator, classifier = model.locator, change(model.classifier)
    if isinstance(locator, RunLocator):
        locator = RunLocator(change(locator.network), locator.space, locator.fill)
    if isinstance(model, Oracle):
        return Oracle(locator, classifier).eval()
    return StnPlus(locator, classifier, model.fill).eval()


def load_locator(path: Path) -> RunLocator:
    """Load the newest weights of a run with the objective ``LocNet``."""
    recipe = RunDirectory.open(path).recipe
    if not isinstance(recipe.objective, LocNet):
        raise ValueError(
            f"{path} was trained with {recipe.objective}, which finds no poses; name a run of "
            "LocNet(black) or LocNet(reflection) first, then the classifier"
        )
    return RunLocator(load_network(path), recipe.space, recipe.objective.fill)


@model_source(
    "stn-plus:LOCNET,CLASSIFIER",
    STN_PLUS.pattern,
    prefix=True,
    about="two runs, of which the first straightens images",
)
def load_stn_plus(locnet: str, classifier: str, *, device: torch.device) -> Model:
    """Load the two runs."""
    locator = load_locator(Path(locnet))
    return StnPlus(locator, load_run(classifier, device=device), locator.fill).to(device).eval()
