"""What ``continuum.py`` measured: its file, its tables and its figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from upright.files import write_whole
from upright.records import Record
from upright.report.figures.draw import Drawing, look, styled

TRUTH = "truth"
JUDGED = (100, 300, 1000)
"""Passes for which estimates are listed; with fewer, few slopes were seen."""
PICTURE = "![Accuracy under searches against their passes](images/continuum.svg)"


@dataclass(frozen=True)
class Estimate:
    """What slopes said of the images that an attack did not fool, and what became of them."""

    accuracy: float
    early_safe: int
    """Images called safe after a quarter of the passes."""
    early_missed: int
    """Of these, those that the rest of the search fooled."""
    safe: int
    """Images called safe in the end."""
    missed: int
    """Of these, those for which the brute force, or another attack, has a pose that fools."""


@dataclass(frozen=True)
class Point:
    """What one attack found on one model and space."""

    model: str
    space: str
    kind: str
    attack: str
    passes: int
    """For an image that nothing fools."""
    images: int
    accuracy: float
    spent: int
    """Passes on all images together, without those that fooled images did not need."""
    seconds: float
    estimate: Estimate | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.model, self.space


@dataclass(frozen=True)
class Speed:
    """Passes a second where nothing is fooled, so that all are spent."""

    model: str
    space: str
    grid: str
    grid_rate: float
    refine: str
    refine_rate: float
    hardware: str

    @property
    def place(self) -> tuple[str, str]:
        return self.model, self.space

    @property
    def ratio(self) -> float:
        return self.refine_rate / self.grid_rate


@dataclass
class Measured:
    """All of it, in the order in which it was measured; of a model and space the last counts."""

    points: list[Point] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)

    def add(self, other: Measured) -> None:
        """Take in more, in the place of what there is of the same models and spaces."""
        again, timed = ({each.place for each in of} for of in (other.points, other.speeds))
        self.points = [each for each in self.points if each.place not in again] + other.points
        self.speeds = [each for each in self.speeds if each.place not in timed] + other.speeds

    def write(self, path: Path) -> None:
        write_whole(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @staticmethod
    def read(paths: Iterable[Path]) -> Measured:
        measured = Measured()
        for path in paths:
            content = json.loads(path.read_text())
            points = [_point(each) for each in content["points"]]
            measured.add(Measured(points, [Speed(**each) for each in content["speeds"]]))
        return measured


def _point(content: dict[str, Any]) -> Point:
    estimate = content.pop("estimate")
    return Point(**content, estimate=None if estimate is None else Estimate(**estimate))


def grouped(points: Iterable[Point]) -> list[list[Point]]:
    """Points by model and space, as they come."""
    return _by(points, lambda point: point.place)


def _by(points: Iterable[Point], key: Callable[[Point], object]) -> list[list[Point]]:
    groups: dict[object, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return list(groups.values())


def sections(measured: Measured, records: Iterable[Record] = ()) -> dict[str, str]:
    """What the documentation shows, by the names of its sections."""
    spaces = _by(measured.points, lambda point: point.space)
    return {
        "continuum": "\n\n".join([PICTURE, *(_accuracies(points) for points in spaces)]),
        "estimates": _estimates(measured.points),
        "speed": _speeds(measured.speeds),
        "training": _trained(records),
    }


def _accuracies(points: Sequence[Point]) -> str:
    """Accuracies on one space in per cent, a column for each model."""
    groups = grouped(points)
    rows = sorted(points, key=lambda point: (point.kind == TRUTH, point.passes, point.kind))
    attacks = dict.fromkeys((point.attack, point.passes) for point in rows)
    lines = [
        _row(f"`{points[0].space}`", "passes", *(_short(group[0].model) for group in groups)),
        _row("---", *["---:"] * (1 + len(groups))),
    ]
    for attack, passes in attacks:
        lines.append(_row(attack, f"{passes:,}", *(_cell(group, attack) for group in groups)))
    return "\n".join(lines)


def _cell(group: Sequence[Point], attack: str) -> str:
    """Accuracy, and by how many points it is above the truth."""
    truth = group[-1].accuracy
    found = [point for point in group if point.attack == attack]
    if not found:
        return "–"
    accuracy = found[0].accuracy
    above = "" if found[0].kind == TRUTH else f" (+{100 * (accuracy - truth):.1f})"
    return f"{100 * accuracy:.1f}{above}"


def _estimates(points: Sequence[Point]) -> str:
    head = ("model", "space", "attack", "accuracy", "estimate", "truth")
    lines = [
        _row(*head, "early estimate missed", "estimate missed"),
        _row(*["---"] * 3, *["---:"] * 5),
    ]
    for group in grouped(points):
        truth = group[-1].accuracy
        for point in group:
            if (said := point.estimate) is not None and point.passes in JUDGED:
                shares = [f"{100 * share:.1f}" for share in (point.accuracy, said.accuracy, truth)]
                early = f"{said.early_missed} of {said.early_safe}"
                name, space = _short(point.model), f"`{point.space}`"
                late = f"{said.missed} of {said.safe}"
                lines.append(_row(name, space, point.attack, *shares, early, late))
    return "\n".join(lines)


def _speeds(speeds: Sequence[Speed]) -> str:
    lines = [
        _row("model", "space", "grid", "passes a second", "refinement", "passes a second", "ratio"),
        _row("---", "---", "---", "---:", "---", "---:", "---:"),
    ]
    for each in speeds:
        rates = [f"{rate:,.0f}" for rate in (each.grid_rate, each.refine_rate)]
        place = (_short(each.model), f"`{each.space}`")
        ratio = f"{each.ratio:.2f}"
        lines.append(_row(*place, each.grid, rates[0], each.refine, rates[1], ratio))
    where = ", ".join(dict.fromkeys(each.hardware for each in speeds))
    return "\n".join(lines) + (f"\n\nMeasured on: {where}." if where else "")


def _short(model: str) -> str:
    return f"`{model.removeprefix('zoo:')}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _trained(records: Iterable[Record]) -> str:
    """Networks that were attacked by a grid and by refinement, as they are recorded."""
    metrics = ("nat", "grid-775", "refine-1000")
    lines = [
        _row("trained by", "seed", "natural", *metrics[1:]),
        _row("---", *["---:"] * 4),
    ]
    for record in records:
        if set(metrics) <= set(record.measured):
            found = [f"{100 * record.measured[metric]:.2f}" for metric in metrics]
            lines.append(_row(f"`{record.method}`", str(record.seed), *found))
    return "\n".join(lines)


@styled
def figure(points: Sequence[Point]) -> Drawing | None:
    """Accuracy against passes, a panel for each model and space, at most three in a row."""
    groups = grouped(points)
    if not groups:
        return None
    across = min(3, len(groups))
    down = -(-len(groups) // across)
    drawing = Figure(figsize=(4.2 * across, 3.4 * down), layout="constrained")
    panels = drawing.subplots(down, across, squeeze=False).flatten()
    for axes, group in zip(panels, groups, strict=False):
        _draw(axes, group)
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return Drawing(
        "continuum",
        "Accuracy under searches against their passes",
        "Dashed: brute force. The lower, the closer an attack is to the worst case.",
        drawing,
    )


def _draw(axes: Axes, points: Sequence[Point]) -> None:
    *found, truth = points
    for number, kind in enumerate(dict.fromkeys(point.kind for point in found)):
        its = sorted((p for p in found if p.kind == kind), key=lambda point: point.passes)
        axes.plot(
            [point.passes for point in its],
            [100 * point.accuracy for point in its],
            label=kind,
            color=look(number).colour,
            marker=look(number).marker,
        )
    axes.axhline(100 * truth.accuracy, linestyle="--", color="black", label="brute force")
    room = 5 * (max(point.accuracy for point in found) - truth.accuracy)
    axes.set_ylim(bottom=100 * truth.accuracy - room)  # or its line is the frame's
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda passes, _: f"{passes:,.0f}")
    axes.set_xlabel("passes an image")
    axes.set_ylabel("accuracy in %")
    axes.set_title(f"{truth.model.removeprefix('zoo:')}\n{truth.space}", fontsize="small")
