"""The picture of `make demo`: accuracies as bars beside an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from upright.report.figures.draw import BLUE, Drawing, styled
from upright.report.figures.example import Example, draw_example_in

__all__ = ["Outcome", "draw_demo"]

_PALE = "#9ecae1"


@dataclass(frozen=True)
class Outcome:
    """What one method reached; accuracies are fractions."""

    method: str
    natural: float
    grid: float
    seconds: float


@styled
def draw_demo(outcomes: Sequence[Outcome], example: Example, grid: str) -> Drawing | None:
    """Draw accuracies as bars, natural and under a grid of this name, beside an example."""
    drawing = Figure(figsize=(11, 3.8), layout="constrained")
    bars, before, after = drawing.subplots(1, 3, width_ratios=(2.4, 1, 1))
    _bars(bars, outcomes, grid)
    draw_example_in(before, after, example)
    return Drawing("demo", "The demo", "Four classifiers of glyphs.", drawing)


def _bars(axes: Axes, outcomes: Sequence[Outcome], grid: str) -> None:
    places = range(len(outcomes))
    width = 0.38
    for offset, colour, name, values in (
        (-width / 2, _PALE, "natural", [outcome.natural for outcome in outcomes]),
        (width / 2, BLUE, f"{grid} (its worst pose)", [outcome.grid for outcome in outcomes]),
    ):
        drawn = axes.bar(
            [place + offset for place in places],
            [100 * value for value in values],
            width,
            color=colour,
            label=name,
        )
        axes.bar_label(drawn, fmt="%.0f", padding=2, fontsize=9)
    axes.set_xticks(list(places), [outcome.method for outcome in outcomes])
    axes.set_ylabel("accuracy in %")
    axes.set_ylim(0, 115)
    axes.grid(visible=False)
    axes.legend(ncols=2, loc="upper left")
