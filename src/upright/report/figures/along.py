"""Where along one axis images are misclassified, example by example, for several models."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from upright.families import Axis
from upright.report.exhibition import Exhibition, titles
from upright.report.figures.draw import WRONG, Drawing, styled

__all__ = ["draw_along"]


@styled
def draw_along(exhibition: Exhibition) -> Drawing | None:
    """Draw a panel for each model: a row for each example, a column for each value of the axis.

    Of the paper's space that is the angle.
    """
    shown, models = exhibition.shown, exhibition.models
    values = shown.grid[shown.along]
    if not models or len(values) < 2:
        return None
    across = min(4, len(models))
    down = -(-len(models) // across)
    drawing = Figure(figsize=(1.9 * across + 0.6, 3.4 * down), layout="constrained")
    panels = list(drawing.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
    first, last = float(values[0]), float(values[-1])
    axis = shown.space.axes[shown.space.chain.column_of[shown.along]]
    ticks = sorted({first, 0.0, last})
    for axes, model, title in zip(panels, models, titles(models), strict=False):
        wrong = model.predicted_along != shown.labels[:, None]
        colours = np.zeros((*wrong.shape, 4))
        colours[wrong] = to_rgba(WRONG)
        axes.imshow(
            colours,
            aspect="auto",
            interpolation="nearest",
            extent=(first, last, len(wrong) + 0.5, 0.5),
        )
        axes.set_title(f"{title}\n{100 * wrong.mean():.0f} % wrong")
        axes.set_xticks(ticks, [_tick(axis, value) for value in ticks])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=False)
    for axes in panels[len(models) :]:
        axes.set_axis_off()
    drawing.supxlabel(_label(axis), fontsize=9.5)
    drawing.supylabel("example", fontsize=9.5)
    return Drawing(
        f"along-{axis.name}-{shown.dataset}",
        f"Where along {axis.name} {len(shown.labels)} random examples of {exhibition.title} are "
        "misclassified",
        "Each row is one example, changed in nothing else; marked where the model is wrong.",
        drawing,
    )


def _label(axis: Axis) -> str:
    """The axis with its unit, which a factor has at each tick."""
    return axis.name if axis.unit in ("factor", "") else f"{axis.name} in {axis.unit}"


def _tick(axis: Axis, value: float) -> str:
    text = axis.show(value) if axis.unit == "factor" else f"{value:g}"
    return text.replace("-", "−")
