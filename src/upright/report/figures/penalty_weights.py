"""Grid and natural accuracy against λ, the weight of the penalty (two figures of the appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from upright.objective import known_objective
from upright.records import Record
from upright.report.comparable import comparable, setting_in_words
from upright.report.compare import estimate, natural_beside
from upright.report.data import LambdaPoint, lambda_curve
from upright.report.figures.draw import EDGE, Drawing, look, styled
from upright.report.model import Estimate

__all__ = ["draw_penalty_weights"]

Search = Literal["rnd", "Wo-k"]
_UNREGULARISED = {"rnd": "std*", "Wo-k": "AT(rob, Wo-10)"}
_LABELS = {"grid": "grid-775 accuracy in %", "natural": "natural accuracy in %"}

Curves = dict[str, tuple[LambdaPoint, ...]]


@styled
def draw_penalty_weights(records: Sequence[Record], search: Search) -> Drawing | None:
    """Draw the methods of one search that were trained with several λ, a column a data set."""
    records = comparable(records)
    settings = {record.dataset: setting_in_words(record) for record in records}
    found = {name: _curves(records, name, search) for name in settings}
    columns = {name: curves for name, curves in found.items() if curves}
    if not columns:
        return None
    drawing = Figure(figsize=(2.9 * len(columns) + 1.9, 4.9), layout="constrained")
    panels = drawing.subplots(2, len(columns), squeeze=False, sharex="col")
    methods = sorted({method for curves in columns.values() for method in curves})
    for column, (name, curves) in enumerate(columns.items()):
        level = _accuracies(records, name, _UNREGULARISED[search])
        for row, metric in enumerate(_LABELS):
            _panel(panels[row][column], curves, methods, metric)
            _level(panels[row][column], level, metric, _UNREGULARISED[search])
        panels[0][column].set_title(name)
        panels[1][column].set_xlabel("weight λ of the penalty")
    for row, label in enumerate(_LABELS.values()):
        panels[row][0].set_ylabel(label)
    handles = {
        label: handle
        for panel in panels[0]
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    drawing.legend(handles.values(), handles.keys(), loc="outside right upper")
    return Drawing(
        f"weights-{search}",
        f"Accuracy against the weight of the penalty, for {search}",
        "Mean over seeds, with the standard error where there are several; dashed: without a "
        f"penalty. Setting: {'; '.join(f'{name} with {settings[name]}' for name in columns)}.",
        drawing,
    )


def _curves(records: Sequence[Record], dataset: str, search: Search) -> Curves:
    """The curve over λ of each method that was trained with at least two."""
    found = [known_objective(name) for name in dict.fromkeys(each.method for each in records)]
    methods = dict.fromkeys(
        each.with_usual_weight()
        for each in found
        if each is not None and each.tries is not None and (each.tries == 1) == (search == "rnd")
    )
    curves = {str(each): lambda_curve(records, dataset=dataset, method=each) for each in methods}
    return {name: curve for name, curve in curves.items() if len(curve) > 1}


def _accuracies(records: Sequence[Record], dataset: str, method: str) -> dict[str, Estimate | None]:
    same = [each for each in records if (each.dataset, each.method) == (dataset, method)]
    return {"grid": estimate(same, "grid-775"), "natural": natural_beside(same, "grid-775")}


def _panel(axes: Axes, curves: Curves, methods: list[str], metric: str) -> None:
    for method, curve in curves.items():
        drawn = look(methods.index(method))
        found: list[Estimate] = [getattr(point, metric) for point in curve]
        axes.errorbar(
            [point.weight for point in curve],
            [100 * each.mean for each in found],
            [100 * (each.stderr or 0) for each in found],
            label=method,
            color=drawn.colour,
            marker=drawn.marker,
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")


def _level(axes: Axes, found: dict[str, Estimate | None], metric: str, method: str) -> None:
    level = found[metric]
    if level is not None:
        axes.axhline(100 * level.mean, color=EDGE, linestyle="--", label=method)
