"""Accuracy from natural to worst-case: by the size of the box, and by the number of poses."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from upright.fooled import Curve
from upright.report.exhibition import Exhibition, fooled_poses, titles
from upright.report.figures.draw import Drawing, look, styled

__all__ = ["draw_curves"]

_POINTS = 24
"""Of the curve over k, which is smooth: more would make the page larger and no line another."""


@styled
def draw_curves(exhibition: Exhibition) -> Drawing | None:
    """Draw two panels with a line for each model."""
    shown, models = exhibition.shown, exhibition.models
    poses = int(np.prod(shown.counts))
    if not models or poses < 2:
        return None
    drawing = Figure(figsize=(7.6, 3.2), layout="constrained")
    by_size, by_count = drawing.subplots(1, 2, sharey=True)
    counts = np.unique(np.geomspace(1, poses, _POINTS).round().astype(int))
    for number, (model, title) in enumerate(zip(models, titles(models), strict=True)):
        fooled = fooled_poses(shown, model)
        _line(by_size, number, title, fooled.by_size, fooled.by_size.at.tolist(), steps=True)
        _line(by_count, number, title, fooled.worst_of, counts.tolist(), steps=False)
    by_size.set_xlabel("size of the box, as a part of it")
    by_size.set_ylabel("accuracy in %")
    by_size.set_ylim(bottom=0)
    by_count.set_xscale("log")
    by_count.set_xlabel("poses drawn for each image")
    by_count.xaxis.set_major_formatter("{x:g}")
    drawing.legend(*by_size.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return Drawing(
        f"curves-{shown.dataset}",
        f"From natural to worst-case accuracy on {exhibition.title}",
        f"Of the {len(shown.images)} explored images. Left: right as they are and at every saved "
        "pose in a box that reaches so much less far. Right: the accuracy to expect when so "
        "many of the saved poses are drawn at random for each image, none twice.",
        drawing,
    )


def _line(
    axes: Axes, number: int, title: str, curve: Curve, places: list[float], *, steps: bool
) -> None:
    drawn = look(number)
    axes.plot(
        places,
        [100 * curve(place) for place in places],
        drawstyle="steps-post" if steps else "default",
        label=title,
        color=drawn.colour,
        marker=drawn.marker,
        markersize=3,
    )
