"""How far searches of a continuous space are from the truth, by the passes that they spend.

    python benchmarks/continuum.py --models zoo:cifar10/std-star zoo:cifar10/l2-rob-wo10 \
        --spaces "shift(3px) rotate(30)" "shift rotate zoom brightness" \
        --json continuum.json --markdown continuum.md --figure docs/images

The truth is brute force: what no attack of the comparison fools, grids among them, is shown
``--truth`` random poses. So no attack is below it; and like all of them, it is an upper bound on
the accuracy under the worst pose.

Random search, grids, S-PGD with restarts and refinement get as many passes as they ask for. Passes
are forward ones for an image that nothing fools; a gradient step costs about three times as much.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from upright import Attack, GridSearch, RandomSearch, RefiningSearch, Space, SpatialPGD
from upright.attacks import usual_grid
from upright.checks import Model
from upright.data import LabelledImages
from upright.evaluation import Precision, Question, examine
from upright.measure import in_precision, load_images
from upright.report.figures.draw import Drawing, look, styled
from upright.sources import load_model
from upright.space import PAPER

RANDOM = (10, 20, 100, 300, 775, 1000, 10_000)
REFINED = (10, 20, 50, 100, 200, 300, 500, 775, 1000)
RESTARTS = (1, 10, 50, 150)
PAPER_GRIDS = ((3, 3, 7), (5, 5, 15), (5, 5, 31), (10, 10, 75))
TRUTH = "truth"


@dataclass(frozen=True)
class Point:
    """What one attack found on one model and space."""

    model: str
    space: str
    kind: str
    attack: str
    passes: int
    """For an image that nothing fools."""
    accuracy: float
    spent: int
    """Passes on all images together, without those that fooled images did not need."""
    seconds: float


def attacks_on(space: Space, most: int) -> Iterator[tuple[str, Attack]]:
    """All attacks of the comparison that spend at most so many passes an image, by their kind."""
    grids = PAPER_GRIDS if space == PAPER else _grids(space)
    kinds: dict[str, Sequence[Attack]] = {
        "random": [RandomSearch(tries) for tries in RANDOM],
        "grid": [GridSearch(counts) for counts in grids],
        "s-pgd": [SpatialPGD(restarts=restarts) for restarts in RESTARTS],
        "refine": [RefiningSearch(passes) for passes in REFINED],
    }
    for kind, members in kinds.items():
        yield from ((kind, attack) for attack in members if attack.passes_per_image <= most)


def _grids(space: Space) -> list[tuple[int, ...]]:
    """The same count for every axis, and the grid that is usual."""
    even = [(count,) * len(space.axes) for count in (2, 3, 4, 5, 6)]
    return [*even, usual_grid(space).counts]


@dataclass
class Comparison:
    """A model, and how it answers under attacks on one space."""

    name: str
    model: Model
    data: LabelledImages
    space: Space
    device: torch.device

    def points(self, most: int, truth: int, at_once: int) -> Iterator[Point]:
        """Measure every attack, and in the end the truth."""
        correct = torch.ones(len(self.data), dtype=torch.bool)
        for kind, attack in attacks_on(self.space, most):
            found, point = self._measure(kind, attack)
            correct &= found
            yield point
        yield self._truth(correct, truth, at_once)

    def _measure(self, kind: str, attack: Attack) -> tuple[Tensor, Point]:
        result = self._fooled_by(attack, self.data)
        name = str(attack)
        if isinstance(attack, SpatialPGD):
            name = f"s-pgd from {attack.restarts} poses"
        passes, accuracy = attack.passes_per_image, result.accuracy
        spent, seconds = result.forward_passes, result.seconds
        return result.correct, self._point(kind, name, passes, accuracy, spent, seconds)

    def _truth(self, correct: Tensor, truth: int, at_once: int) -> Point:
        """Try random poses on the images that nothing fooled yet, other ones in each round."""
        spent, seconds, tried = 0, 0.0, 0
        while tried < truth and correct.any():
            rows = correct.nonzero()[:, 0]
            left = LabelledImages(self.data.images[rows], self.data.labels[rows], self.data.classes)
            result = self._fooled_by(
                RandomSearch(min(at_once, truth - tried)), left, seed=tried + 1
            )
            correct[rows] = result.correct
            tried += at_once
            spent, seconds = spent + result.forward_passes, seconds + result.seconds
        accuracy = float(correct.double().mean())
        return self._point(TRUTH, f"{truth} random poses", truth, accuracy, spent, seconds)

    def _fooled_by(self, attack: Attack, data: LabelledImages, seed: int = 0) -> Any:
        question = Question.of([attack], space=self.space, only_accuracy=True, seed=seed)
        evaluation = examine(self.model, (data.images, data.labels), question, device=self.device)
        (result,) = evaluation.attacks.values()
        return result

    def _point(self, kind: str, attack: str, *numbers: Any) -> Point:
        return Point(self.name, str(self.space), kind, attack, *numbers)


def tables(points: Sequence[Point]) -> str:
    """Markdown, a table for each model and space: accuracies in per cent."""
    return "\n\n".join(_table(group) for group in grouped(points))


def grouped(points: Sequence[Point]) -> list[list[Point]]:
    """Points by model and space, as they come."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.model, point.space), []).append(point)
    return list(groups.values())


def _table(points: Sequence[Point]) -> str:
    truth = points[-1].accuracy
    head = f"`{points[0].model}` under `{points[0].space}`"
    lines = [
        f"| {head} | passes | accuracy in % | points above the truth | passes a second |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for point in sorted(points, key=lambda point: (point.kind == TRUTH, point.passes)):
        above = 100 * (point.accuracy - truth)
        rate = point.spent / point.seconds if point.seconds else 0.0
        lines.append(
            f"| {point.attack} | {point.passes} | {100 * point.accuracy:.2f} | {above:.2f} | "
            f"{rate:.0f} |"
        )
    return "\n".join(lines)


@styled
def figure(points: Sequence[Point]) -> Drawing | None:
    """Accuracy against passes, a panel for each model and space."""
    groups = grouped(points)
    drawing = Figure(figsize=(4.2 * len(groups), 3.4), layout="constrained")
    for axes, group in zip(drawing.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        _draw(axes, group)
    drawing.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
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
    axes.axhline(100 * truth.accuracy, linestyle="--", color="black", label=truth.attack)
    axes.set_xscale("log")
    axes.set_xlabel("passes an image")
    axes.set_ylabel("accuracy in %")
    axes.set_title(f"{truth.model.rpartition('/')[2]}: {truth.space}", fontsize="small")


def measure(options: argparse.Namespace) -> list[Point]:
    """Compare on every model and space; what is known is written after each point."""
    device, points = torch.device(options.device), []
    for name in options.models:
        precision: Precision = "float16" if device.type == "cuda" else "float32"
        taken = Question(limit=options.images, precision=precision)
        model = in_precision(taken, load_model(name, device=device))
        data = load_images(taken, options.data)
        for text in options.spaces:
            comparison = Comparison(name, model, data, Space.of(text), device)
            for point in comparison.points(options.most, options.truth, options.at_once):
                print(point.model, point.space, point.attack, point.accuracy, flush=True)
                points.append(point)
                if options.json is not None:
                    options.json.write_text(json.dumps([asdict(each) for each in points], indent=1))
    return points


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    if options.measured is not None:
        points = [Point(**each) for each in json.loads(options.measured.read_text())]
    else:
        points = measure(options)
    if options.markdown is not None:
        options.markdown.write_text(tables(points) + "\n")
    drawing = figure(points) if options.figure is not None else None
    if drawing is not None:
        drawing.write(options.figure)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", default=["zoo:cifar10/std-star", "zoo:cifar10/l2-rob-wo10"])
    add("--spaces", nargs="+", default=[str(PAPER)])
    add("--data", default="cifar10")
    add("--images", type=int, default=1000, help="the first so many test images")
    add("--truth", type=int, default=200_000, help="random poses an image of the brute force")
    add("--at-once", type=int, default=5000, help="of these, drawn at once")
    add("--most", type=int, default=10_000, help="leave out attacks with more passes an image")
    add("--json", type=Path, help="write what was measured")
    add("--measured", type=Path, help="read this instead of measuring")
    add("--markdown", type=Path, help="write tables")
    add("--figure", type=Path, help="draw into this folder")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


if __name__ == "__main__":
    main()
