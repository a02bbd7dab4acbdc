"""Which angles are misclassified, example by example, for several models."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from upright.report.figures.draw import WRONG, Drawing, styled
from upright.report.saved import Exhibition
from upright.report.titles import titles

__all__ = ["draw_angles"]


@styled
def draw_angles(exhibition: Exhibition) -> Drawing | None:
    """Draw a panel for each model: a row for each example, a column for each angle."""
    shown, models = exhibition.shown, exhibition.models
    if not models or len(shown.angle_degrees) < 2:
        return None
    across = min(4, len(models))
    down = -(-len(models) // across)
    drawing = Figure(figsize=(1.9 * across + 0.6, 3.4 * down), layout="constrained")
    panels = list(drawing.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
    first, last = float(shown.angle_degrees[0]), float(shown.angle_degrees[-1])
    for axes, model, title in zip(panels, models, titles(models), strict=False):
        wrong = model.turned != shown.labels[:, None]
        colours = np.zeros((*wrong.shape, 4))
        colours[wrong] = to_rgba(WRONG)
        axes.imshow(
            colours,
            aspect="auto",
            interpolation="nearest",
            extent=(first, last, len(wrong) + 0.5, 0.5),
        )
        axes.set_title(f"{title}\n{100 * wrong.mean():.0f} % wrong")
        axes.set_xticks([first, 0, last])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=False)
    for axes in panels[len(models) :]:
        axes.set_axis_off()
    drawing.supxlabel("angle in degrees", fontsize=9.5)
    drawing.supylabel("example", fontsize=9.5)
    return Drawing(
        f"angles-{shown.dataset}",
        f"Angles at which {len(shown.labels)} random examples of {shown.dataset} are misclassified",
        "Each row is one example, turned without a shift; marked where the model is wrong.",
        drawing,
    )
