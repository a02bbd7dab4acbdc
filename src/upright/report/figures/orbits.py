"""A sketch of an orbit, a transformation set on it, and the search sets that cover it.

All turned copies of one picture form a circle. The transformation set is a part of it; wherever on
that part the picture at hand lies, the search set around it must reach all of the part. So it spans
as much to either side as the whole transformation set is long.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from upright.report.figures.draw import EDGE, GRID, INK, SERIES, Drawing, styled

__all__ = ["draw_orbits"]

_LOW, _HIGH = 55.0, 125.0
"""Where the transformation set begins and ends on the circle, in degrees."""
_CASES = (
    ("(a) at one end", _HIGH, "$I_1$"),
    ("(b) in between", 95.0, "$I_2$"),
    ("(c) at the other end", _LOW, "$I_3$"),
)


@styled
def draw_orbits() -> Drawing | None:
    """Draw three places in one transformation set, each with its search set."""
    drawing = Figure(figsize=(7.2, 3.0), layout="constrained")
    for axes, (title, place, name) in zip(drawing.subplots(1, 3), _CASES, strict=True):
        _arc(axes, 1.0, 0, 360, color=GRID, linewidth=2, label="orbit")
        _arc(axes, 1.0, _LOW, _HIGH, color=SERIES[0], linewidth=7, label="transformation set")
        reach = _HIGH - _LOW
        _arc(
            axes,
            1.2,
            place - reach,
            place + reach,
            color=SERIES[1],
            linewidth=2.5,
            linestyle=(0, (4, 1.5)),
            label="search set",
        )
        _place(axes, place, name)
        axes.set_title(title, fontsize=9.5)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_xlim(-1.45, 1.45)
        axes.set_ylim(-1.2, 1.55)
    handles, labels = axes.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=3)
    return Drawing(
        "orbits",
        "Orbits and search sets",
        "A sketch: wherever in its transformation set an image lies, the search set around it "
        "covers that set. It reaches as far to either side as the set is long.",
        drawing,
    )


def _arc(axes: Axes, radius: float, low: float, high: float, **line: object) -> None:
    angle = np.deg2rad(np.linspace(low, high, 200))
    axes.plot(
        radius * np.cos(angle),
        radius * np.sin(angle),
        solid_capstyle="butt",
        **line,  # type: ignore[arg-type]
    )


def _place(axes: Axes, degrees: float, name: str) -> None:
    x, y = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    axes.plot([x, 1.2 * x], [y, 1.2 * y], color=EDGE, linewidth=0.9)
    axes.plot(x, y, "o", color=INK, markersize=6)
    axes.annotate(
        name, (0.78 * x, 0.78 * y), ha="center", va="center", fontsize=10, parse_math=True
    )
