"""How far searches of a continuous space are from the truth, by the passes that they spend.

    python benchmarks/continuum.py --models zoo:cifar10/std-star zoo:svhn/std-star \
        --spaces "shift(3px) rotate(30)" "shift rotate zoom brightness" \
        --json results/continuum/searches.json
    python benchmarks/continuum.py --measured results/continuum/searches.json \
        --records results/continuum/training.jsonl --markdown docs/continuum.md --figure docs/images

The truth is brute force: what no attack of the comparison fools, grids among them, is shown
``--truth`` random poses, the same to all images. So no attack is below it; and like all of them, it
is an upper bound on the accuracy under the worst pose.

Random search, grids, S-PGD with restarts and refinement, with and without gradient steps in the
end, get as many passes as they ask for. Passes are forward ones for an image that nothing fools; a
gradient step costs about three times as much. On a GPU attacks that climb are measured in float32,
all others in float16.

A file that is there already keeps what it has of other models and spaces.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from continuum_tables import TRUTH, Estimate, Measured, Point, Speed, figure, sections
from torch import Tensor, nn

from upright import (
    Attack,
    AttackResult,
    GridSearch,
    RandomSearch,
    RefiningClimb,
    RefiningSearch,
    Space,
    SpatialPGD,
    WorstCase,
)
from upright.attacks import Rounds, RoundSearch, usual_grid
from upright.checks import Model
from upright.data import LabelledImages
from upright.evaluation import Precision, Question, examine
from upright.files import write_whole
from upright.measure import as_asked, load_images, question_of_run
from upright.origin import hardware
from upright.pose import Pose
from upright.record_files import read
from upright.report.sections import fill_sections
from upright.sources import load_model
from upright.space import PAPER
from upright.zoo import shelf

RANDOM = (10, 20, 100, 300, 775, 1000, 10_000)
REFINED = (10, 20, 50, 100, 200, 300, 500, 775, 1000)
CLIMBING = (20, 100, 300, 775, 1000)
RESTARTS = (1, 10, 50)
PAPER_GRIDS = ((3, 3, 7), (5, 5, 15), (5, 5, 31), (10, 10, 75))


def attacks_on(space: Space, most: int) -> Iterator[tuple[str, Attack]]:
    """All attacks of the comparison that spend at most so many passes an image, by their kind."""
    grids = PAPER_GRIDS if space == PAPER else _grids(space)
    kinds: dict[str, Sequence[Attack]] = {
        "random": [RandomSearch(tries) for tries in RANDOM],
        "grid": [GridSearch(counts) for counts in grids],
        "s-pgd": [SpatialPGD(restarts=restarts) for restarts in RESTARTS],
        "refine": [RefiningSearch(passes) for passes in REFINED],
        "refine+s-pgd": [RefiningClimb(passes) for passes in CLIMBING],
    }
    for kind, members in kinds.items():
        yield from ((kind, attack) for attack in members if attack.passes_per_image <= most)


def _grids(space: Space) -> list[tuple[int, ...]]:
    """The same count for every axis, and the grid that is usual."""
    even = [(count,) * len(space.axes) for count in (2, 3, 4, 5, 6)]
    return [*even, usual_grid(space).counts]


@dataclass(frozen=True)
class BruteForce(RoundSearch):
    """Random poses, the same for all images, of which only some are in memory at once."""

    tries: int
    at_once: int

    def __str__(self) -> str:
        return f"{self.tries:,} random poses"

    @property
    def passes_per_image(self) -> int:
        return self.tries

    def begin(self, space: Space, count: int, *, generator: torch.Generator) -> Rounds:
        del count
        return _Draws(space, self.tries, self.at_once, generator)


@dataclass
class _Draws(Rounds):
    space: Space
    left: int
    at_once: int
    generator: torch.Generator

    def propose(self) -> Pose | None:
        count = min(self.left, self.at_once)
        self.left -= count
        return self.space.sample(count, generator=self.generator)[:, None] if count else None

    def learn(self, scores: Tensor) -> None:
        """Nothing: what is drawn does not depend on it."""

    def restrict(self, rows: Tensor) -> Rounds:
        del rows
        return self

    def worst(self) -> WorstCase:
        raise NotImplementedError("only accuracy is asked of brute force")


class Unfooled(nn.Module):
    """A model that spends what another does, and whose answer is always the first class."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits.tanh() + 3 * (torch.arange(logits.shape[1], device=logits.device) == 0)


@dataclass
class Comparison:
    """A model, and how it answers under attacks on one space."""

    name: str
    model: Model
    data: LabelledImages
    question: Question
    """Without attacks."""
    device: torch.device

    @cached_property
    def in_half(self) -> Model:
        return as_asked(self.model, self.half, self.data, self.device)

    @property
    def half(self) -> Question:
        """The question of attacks that only compare."""
        precision: Precision = "float16" if self.device.type == "cuda" else "float32"
        return replace(self.question, precision=precision)

    def points(self, most: int, truth: int, at_once: int) -> list[Point]:
        """Measure every attack, and in the end the truth."""
        correct, found = torch.ones(len(self.data), dtype=torch.bool), []
        for kind, attack in attacks_on(self.question.space, most):
            result = self._under(attack)
            correct &= result.correct
            found.append((self._point(kind, attack, result), result))
            print(self.name, self.question.space, attack, result.accuracy, flush=True)
        truth_point = self._truth(correct, BruteForce(truth, at_once))
        print(self.name, self.question.space, TRUTH, truth_point.accuracy, flush=True)
        judged = [replace(point, estimate=_judged(result, correct)) for point, result in found]
        return [*judged, truth_point]

    def _point(self, kind: str, attack: Attack, result: AttackResult) -> Point:
        name = str(attack)
        if isinstance(attack, SpatialPGD):
            name = f"s-pgd from {attack.restarts} poses"
        return Point(
            *(self.name, str(self.question.space), kind, name),
            passes=attack.passes_per_image,
            images=len(result.correct),
            accuracy=result.accuracy,
            spent=result.forward_passes,
            seconds=result.seconds,
        )

    def _truth(self, correct: Tensor, attack: BruteForce) -> Point:
        """Try random poses on the images that nothing fooled yet; write down those it fools."""
        rows, data = correct.nonzero()[:, 0], self.data
        if not len(rows):
            nothing = Point(
                *(self.name, str(self.question.space), TRUTH, str(attack)), 0, 0, 0, 0, 0
            )
            return replace(nothing, passes=attack.tries, images=len(correct))
        left = LabelledImages(data.images[rows], data.labels[rows], data.classes)
        result = self._under(attack, left)
        correct[rows] = result.correct
        point = self._point(TRUTH, attack, result)
        return replace(point, images=len(correct), accuracy=float(correct.double().mean()))

    def _under(self, attack: Attack, data: LabelledImages | None = None) -> AttackResult:
        question = self.question if attack.climbs else self.half
        model = self.model if attack.climbs else self.in_half
        return _result(question, model, self.data if data is None else data, attack, self.device)

    def speed(self, most: int, repeats: int = 3) -> Speed:
        """Time a grid, and a refinement of as many passes, where nothing is fooled."""
        every = [attack for kind, attack in attacks_on(self.question.space, most) if kind == "grid"]
        grid = min(every, key=lambda attack: abs(attack.passes_per_image - 775))
        refine = RefiningSearch(grid.passes_per_image)
        data = LabelledImages(
            self.data.images, torch.zeros_like(self.data.labels), self.data.classes
        )
        model, rates = Unfooled(self.in_half).eval(), {}
        for attack in (grid, refine):
            found = [
                _result(self.half, model, data, attack, self.device) for _ in range(1 + repeats)
            ]
            assert found[-1].forward_passes == len(data) * attack.passes_per_image
            rates[attack] = max(result.forward_passes / result.seconds for result in found)
        return Speed(
            *(self.name, str(self.question.space), str(grid), rates[grid]),
            *(str(refine), rates[refine], hardware(self.device)),
        )


def _result(
    question: Question, model: Model, data: LabelledImages, attack: Attack, device: torch.device
) -> AttackResult:
    asked = replace(question, attacks={str(attack): attack}, only_accuracy=True)
    evaluation = examine(model, (data.images, data.labels), asked, device=device)
    (result,) = evaluation.attacks.values()
    return result


def _judged(result: AttackResult, correct: Tensor) -> Estimate | None:
    """Hold an estimate against the images that are ``correct`` in truth."""
    said = result.estimate
    if said is None:
        return None
    return Estimate(
        said.accuracy,
        early_safe=int(said.safe_early.sum()),
        early_missed=int(said.went_below.sum()),
        safe=int(said.safe.sum()),
        missed=int((said.safe & ~correct).sum()),
    )


def _data_of(model: str, asked: str | None) -> tuple[str, Question]:
    """The data by name, and how they are read: as a network of the zoo saw its own."""
    if model.startswith("zoo:"):
        recipe = shelf.card(model.removeprefix("zoo:")).recipe
        return asked or recipe.data, question_of_run(recipe)
    if asked is None:
        raise SystemExit(f"{model} does not say what its data are; give --data")
    return asked, Question()


def measure(options: argparse.Namespace) -> Measured:
    """Compare on every model and space; what is known is written after each of them."""
    measured, device = Measured(), torch.device(options.device)
    if options.json is not None and options.json.exists():
        measured = Measured.read([options.json])
    for name in options.models:
        asked, question = _data_of(name, options.data)
        data = load_images(replace(question, limit=options.images), asked)
        model = load_model(name, device=device)
        for text in options.spaces:
            its = replace(question, space=Space.of(text))
            comparison = Comparison(name, model, data, its, device)
            speeds = [comparison.speed(options.most)] if options.speed else []
            points = comparison.points(options.most, options.truth, options.at_once)
            measured.add(Measured(points, speeds))
            if options.json is not None:
                measured.write(options.json)
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    measured = Measured.read(options.measured) if options.measured else measure(options)
    records = [record for path in options.records for record in read(path).records]
    if options.markdown is not None:
        page = fill_sections(options.markdown.read_text(), sections(measured, records))
        write_whole(options.markdown, page.encode())
    drawing = figure(measured.points) if options.figure is not None else None
    if drawing is not None:
        write_whole(options.figure / f"{drawing.name}.svg", drawing.svg.encode())


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", default=["zoo:cifar10/std-star"])
    add("--spaces", nargs="+", default=[str(PAPER)])
    add("--data", help="of models that are not from the zoo, or other data than their own")
    add("--images", type=int, default=1000, help="the first so many test images")
    add("--truth", type=int, default=200_000, help="random poses an image of the brute force")
    add("--at-once", type=int, default=256, help="of these, tried before fooled images leave")
    add("--most", type=int, default=10_000, help="leave out attacks with more passes an image")
    add("--speed", action="store_true", help="time refinement beside a grid, too")
    add("--json", type=Path, help="add what was measured to this file")
    add("--measured", type=Path, nargs="+", help="read these instead of measuring")
    add("--records", type=Path, nargs="*", default=[], help="of networks trained by refinement")
    add("--markdown", type=Path, help="fill the sections of this page")
    add("--figure", type=Path, help="draw into this folder")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


if __name__ == "__main__":
    main()
