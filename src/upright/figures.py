"""Figures. Colours are told apart in grey and by colour-blind people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from torch import Tensor

from upright.pose import Pose

__all__ = ["Example", "Outcome", "draw_demo"]

_LIGHT, _DARK = "#9ecae1", "#08519c"


@dataclass(frozen=True)
class Outcome:
    """What one method reached; accuracies are fractions."""

    method: str
    natural: float
    grid: float
    seconds: float


@dataclass(frozen=True)
class Example:
    """One image as it is and at its worst pose, and what two networks see in it."""

    image: Tensor
    moved: Tensor
    pose: Pose
    label: str
    weak: str
    strong: str
    weak_method: str
    strong_method: str


def draw_demo(outcomes: list[Outcome], example: Example, path: Path) -> None:
    """Draw accuracies as bars beside an example, and save the figure."""
    figure, (bars, before, after) = plt.subplots(
        1, 3, figsize=(11, 3.8), width_ratios=(2.4, 1, 1), layout="constrained"
    )
    _bars(bars, outcomes)
    _picture(before, example.image, f"as it is: a {example.label}")
    dx, dy, angle = (float(part) for part in (example.pose.dx, example.pose.dy, example.pose.angle))
    _picture(
        after,
        example.moved,
        f"turned {angle:+.0f}°, shifted ({dx:+.1f}, {dy:+.1f}) px\n"
        f"{example.weak_method}: a {example.weak}\n{example.strong_method}: a {example.strong}",
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _bars(axes: Axes, outcomes: list[Outcome]) -> None:
    places = range(len(outcomes))
    width = 0.38
    for offset, colour, name, values in (
        (-width / 2, _LIGHT, "natural", [outcome.natural for outcome in outcomes]),
        (width / 2, _DARK, "grid-775 (worst of 775 poses)", [o.grid for o in outcomes]),
    ):
        drawn = axes.bar(
            [place + offset for place in places],
            [100 * value for value in values],
            width,
            color=colour,
            label=name,
        )
        axes.bar_label(drawn, fmt="%.0f", padding=2, fontsize=9)
    axes.set_xticks(list(places), [outcome.method for outcome in outcomes], fontsize=9)
    axes.set_ylabel("accuracy in %")
    axes.set_ylim(0, 115)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=9)


def _picture(axes: Axes, image: Tensor, title: str) -> None:
    axes.imshow(image.permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
