"""An image as it is and at its worst pose, with what two models see in it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from upright.pose import Pose
from upright.report.exhibition import Array, Exhibition, SavedModel, Shown, titles
from upright.report.figures.draw import Drawing, styled
from upright.warp import warp

__all__ = ["Example", "draw_example", "draw_example_in", "find_example"]

_LINE = 36
"""Characters that stand side by side above a picture."""


@dataclass(frozen=True)
class Example:
    """One image and two models: the weak one errs at the pose that is the worst for it."""

    title: str
    """Of the images that are shown."""
    shown: Shown
    image: int
    """Which of the shown images."""
    weak: SavedModel
    weak_title: str
    strong: SavedModel
    strong_title: str

    @property
    def at(self) -> tuple[int, ...]:
        """The weak model's worst pose: where it lies on each axis of the grid."""
        grid = self.weak.predicted.shape[1:]
        return tuple(int(i) for i in np.unravel_index(int(self.weak.worst[self.image]), grid))

    def pose_text(self) -> str:
        """What the pose changes, in words."""
        values = zip(self._pose.chain.axes, self._pose.values[0].tolist(), strict=True)
        shown = [(axis, axis.show(value)) for axis, value in values]
        changed = [
            f"{axis.name} {text.replace('-', '−')}" for axis, text in shown if text != axis.show(0)
        ]
        return ", ".join(changed) or "as it is"

    @property
    def _pose(self) -> Pose:
        return self.shown.pose_at(self.at)

    def moved(self) -> Array:
        """What models see of the image at that pose: float, C x H x W."""
        return self._at(self._pose)

    def upright(self) -> Array:
        """What models see of the image as it is: float, C x H x W."""
        return self._at(self.shown.space.zeros(1))

    def _at(self, pose: Pose) -> Array:
        image = torch.as_tensor(self.shown.images[self.image])[None].float() / 255
        moved: Array = warp(image, pose, view=self.shown.view)[0].numpy()
        return moved

    def answer(self, model: SavedModel) -> str:
        """What a model sees at that pose."""
        place = (self.image, *self.at)
        sure = 100 * int(model.confidence[place]) / 255  # a byte holds no 100 times itself
        return f"{self.shown.class_name(model.predicted[place])} ({sure:.0f} %)"


def find_example(exhibition: Exhibition) -> Example | None:
    """Choose the image that tells two models apart most clearly.

    The weak model is the one of lowest grid accuracy, the strong one that of highest. The image is
    right as it is for both; at the weak model's worst pose the weak one is wrong and the strong one
    right, and both are sure of it. Of a single model, it is one that its pose tips over.
    """
    if not exhibition.models:
        return None
    named = list(zip(exhibition.models, titles(exhibition.models), strict=True))
    weak, weak_title = min(named, key=lambda pair: pair[0].measured[pair[0].attack])
    strong, strong_title = max(named, key=lambda pair: pair[0].measured[pair[0].attack])
    labels = exhibition.shown.labels[: len(weak.worst)]
    rows = np.arange(len(labels))
    at = (rows, *np.unravel_index(weak.worst, weak.predicted.shape[1:]))
    fit = (weak.natural == labels).astype(float) + (strong.natural == labels)
    fit += np.where(weak.predicted[at] != labels, weak.confidence[at] / 255, -1)
    if strong is not weak:  # which cannot be both wrong and right there
        fit += np.where(strong.predicted[at] == labels, strong.confidence[at] / 255, -1)
    chosen = int(fit.argmax())
    models = (weak, weak_title, strong, strong_title)
    return Example(exhibition.title, exhibition.shown, chosen, *models)


@styled
def draw_example(example: Example) -> Drawing | None:
    """Draw the image beside itself at the worst pose."""
    drawing = Figure(figsize=(5.6, 3.4), layout="constrained")
    before, after = drawing.subplots(1, 2)
    draw_example_in(before, after, example)
    seen = "both models see" if example.weak is not example.strong else "it sees"
    return Drawing(
        f"example-{example.shown.dataset}",
        f"An example of {example.title} at its worst pose",
        f"The pose at which {example.weak_title} errs most, and what {seen} there, with the "
        "confidence.",
        drawing,
    )


def draw_example_in(before: Axes, after: Axes, example: Example) -> None:
    """Draw both pictures into axes."""
    label = example.shown.class_name(example.shown.labels[example.image])
    _picture(before, example.upright(), f"as it is: {label}")
    seen = f"{example.weak_title}: {example.answer(example.weak)}"
    if example.strong is not example.weak:
        seen += f"\n{example.strong_title}: {example.answer(example.strong)}"
    pose = textwrap.fill(example.pose_text(), _LINE)
    _picture(after, example.moved(), f"{pose}\n{seen}")


def _picture(axes: Axes, image: Array, title: str) -> None:
    grey = image.shape[0] == 1
    axes.imshow(
        image[0] if grey else image.transpose(1, 2, 0).clip(0, 1),
        cmap="gray" if grey else None,
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
