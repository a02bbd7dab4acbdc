"""What an evaluation is asked, beside model, data and attacks: to do it, and to record it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch

from upright.checks import Model
from upright.data import LabelledImages, Split, load_data
from upright.evaluation import Evaluation, evaluate
from upright.later import later_defaults, without_defaults
from upright.models import in_half_precision
from upright.sources.stn_plus import each_network
from upright.space import PAPER, Space
from upright.train import Recipe
from upright.warp import Fill, Interpolation

__all__ = ["LATER", "Precision", "Settings"]

Precision = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of an evaluation, in the words of ``upright evaluate``; by default the paper's.

    One question has one ``Record.key``, whoever asks it: these are its words.
    """

    space: Space = PAPER
    split: Split = "test"
    limit: int | None = None
    resize: int | None = None
    center_crop: int | None = None
    fill: Fill = "black"
    interpolation: Interpolation = "bilinear"
    canvas: int = 0
    view: int | None = None
    precision: Precision = "float32"
    seed: int | None = None
    top: int = 1
    include_identity: bool = False

    @staticmethod
    def of_run(recipe: Recipe) -> Settings:
        """The paper's settings, with images of the size that a run was trained on."""
        return Settings(resize=recipe.resize, center_crop=recipe.center_crop, view=recipe.view)

    def as_json(self) -> dict[str, Any]:
        """Give them as records hold them."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return without_defaults(fields | {"space": str(self.space)}, LATER)

    def load(self, data: str) -> LabelledImages:
        """Load the images that are asked for, of data by name."""
        return load_data(
            data,
            split=self.split,
            limit=self.limit,
            resize=self.resize,
            center_crop=self.center_crop,
        )

    def in_precision(self, model: Model) -> Model:
        """Give the model in the precision in which it is to be evaluated.

        Of a two-stage model that is each network, by its own kernels where it has such. The pose
        between them, and the warp by it, stay in float32: a pose in half precision would be a grid.
        What float16 does to a LocNet's outputs is a small part of its own error, which a test
        holds: 2⁻¹¹ of the limits are 0.015 degrees and 0.0015 px. In bfloat16 it is eight times so.
        """
        precision = self.precision
        if precision == "float32":
            return model
        return each_network(model, lambda network: in_half_precision(network, precision))

    def evaluate(self, model: Model, data: LabelledImages, **options: Any) -> Evaluation:
        """Evaluate a model ``in_precision`` on images that ``load`` gave.

        The options are those of ``upright.evaluate`` that are no settings.
        """
        return evaluate(
            model,
            (data.images, data.labels),
            space=self.space,
            fill=self.fill,
            interpolation=self.interpolation,
            canvas=self.canvas,
            view=self.view,
            limit=self.limit,
            top=self.top,
            include_identity=self.include_identity,
            generator=None if self.seed is None else torch.Generator().manual_seed(self.seed),
            **options,
        )


LATER = later_defaults(Settings, "top", "include_identity", "view")
"""Settings that the first records do not have, with what they had."""
