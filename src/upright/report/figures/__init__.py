"""The paper's figures, from records and saved arrays alone: each as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count

from upright.records import Record
from upright.report.data import runtime_points
from upright.report.exhibition import Exhibition
from upright.report.figures.along import draw_along
from upright.report.figures.curves import draw_curves
from upright.report.figures.demo import Outcome, draw_demo
from upright.report.figures.draw import Drawing
from upright.report.figures.example import Example, draw_example, find_example
from upright.report.figures.orbits import draw_orbits
from upright.report.figures.penalty_weights import draw_penalty_weights
from upright.report.figures.runtime import draw_runtime

__all__ = [
    "Drawing",
    "Example",
    "Outcome",
    "all_drawings",
    "draw_along",
    "draw_curves",
    "draw_demo",
    "draw_example",
    "draw_orbits",
    "draw_penalty_weights",
    "draw_runtime",
    "find_example",
]


def all_drawings(
    records: Sequence[Record], exhibitions: Sequence[Exhibition]
) -> tuple[Drawing, ...]:
    """Draw every figure for which there are data, in the order of the paper; then our own."""
    points = runtime_points(records)
    drawings: list[Drawing | None] = []
    for exhibition in exhibitions:
        example = find_example(exhibition)
        drawings.append(None if example is None else draw_example(example))
    datasets = dict.fromkeys(point.dataset for point in points)
    drawings += [draw_runtime(points, dataset) for dataset in datasets]
    drawings.append(draw_orbits())
    drawings += [draw_penalty_weights(records, "rnd"), draw_penalty_weights(records, "Wo-k")]
    drawings += [draw_along(exhibition) for exhibition in exhibitions]
    drawings += [draw_curves(exhibition) for exhibition in exhibitions]
    return _named_apart(drawing for drawing in drawings if drawing is not None)


def _named_apart(drawings: Iterable[Drawing]) -> tuple[Drawing, ...]:
    """Number the names that repeat: each is that of a file."""
    named: dict[str, Drawing] = {}
    for drawing in drawings:
        numbered = (replace(drawing, name=f"{drawing.name}-{number}") for number in count(2))
        chosen = next(each for each in chain([drawing], numbered) if each.name not in named)
        named[chosen.name] = chosen
    return tuple(named.values())
