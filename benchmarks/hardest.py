"""What a robust classifier still gets wrong: which images, at which poses, taken for what.

    python benchmarks/hardest.py --images 400 --json results/hardest/cifar10.json \
        --sheet runs/hardest.png
    python benchmarks/leaderboard.py --markdown docs/leaderboard.md

All poses of a grid are tried on every image, which on a GPU is a matter of seconds, and on a CPU of
minutes for some hundred images. The sheet shows images as they are and at their worst poses, so
that a person can judge whether people would get them right: the first half of it are the fooled
images of highest loss, the other half are spread evenly over the rest. The images belong to those
who made them: the sheet is for looking at, not for the repository.
"""

from __future__ import annotations

import argparse
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from hardest_tables import QUARTILES, Class, Confusion, Distances, Hardest, Picture, Region
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from upright import Pose, warp
from upright.evaluation import AttackResult, Question
from upright.files import write_whole
from upright.fooled import FooledPoses
from upright.logits import ask
from upright.measure import Measured, load, measure
from upright.origin import hardware
from upright.report.figures.draw import WRONG

TURNS = (0.0, 10.0, 20.0, 30.0)
"""Of angles in degrees, whichever way: between these, and the last by itself."""
SHIFTS = (0.0, 1.5, 3.0)
"""In pixels, likewise."""


@dataclass(frozen=True, eq=False)
class Answers:
    """An evaluation under one grid, and what else is to be known at the worst poses."""

    measured: Measured
    attack: str
    worst_pose: Pose
    worst_class: Tensor
    worst_loss: Tensor
    fooled_poses: FooledPoses
    natural: Tensor
    """Probabilities of the classes: images x classes."""
    worst: Tensor
    """The same at the worst poses."""

    @property
    def labels(self) -> Tensor:
        return self.measured.evaluation.labels

    @property
    def names(self) -> tuple[str, ...]:
        return self.measured.images.classes

    @property
    def fooled(self) -> Tensor:
        """Places of the images that are right as they are and fooled, the highest loss first."""
        evaluation = self.measured.evaluation
        fooled = evaluation.natural_correct & ~evaluation.attacks[self.attack].correct
        places = fooled.nonzero()[:, 0]
        return places[self.worst_loss[places].argsort(descending=True, stable=True)]


def answers(options: argparse.Namespace) -> Answers:
    """Evaluate, and ask once more at the poses that were worst."""
    attack, device = options.attack, torch.device(options.device)
    question = Question.of([attack], limit=options.images)
    loaded = load(options.model, options.data, question, device=device, recorded=False)
    measured = measure(loaded, state=options.state, progress=True)
    result = measured.evaluation.attacks[attack]
    poses, classes, loss, fooled = _all_of(result)
    still = poses.like(torch.zeros_like(poses.values))
    return Answers(
        *(measured, attack, poses, classes, loss, fooled),
        natural=_probabilities(measured, still),
        worst=_probabilities(measured, poses),
    )


def _all_of(result: AttackResult) -> tuple[Pose, Tensor, Tensor, FooledPoses]:
    """What there is of a grid, where not only accuracy was asked."""
    found = (result.worst_pose, result.worst_class, result.worst_loss, result.fooled)
    poses, classes, loss, fooled = found
    if poses is None or classes is None or loss is None or fooled is None:
        raise SystemExit(f"{result.attack} does not try the same poses on all images; name a grid")
    return poses, classes, loss, fooled


@torch.no_grad()
def _probabilities(measured: Measured, poses: Pose) -> Tensor:
    device, parts = measured.loaded.device, []
    for place in range(0, len(poses), 256):
        its = slice(place, place + 256)
        images = measured.images.images[its].to(device).float() / 255
        moved = warp(images, poses[its].to(device))
        parts.append(ask(measured.loaded.model, moved).float().softmax(1).cpu())
    return torch.cat(parts)


def hardest(found: Answers, model: str, *, keep: int) -> Hardest:
    """Sum up what fails; so many images are listed one by one."""
    evaluation, loaded = found.measured.evaluation, found.measured.loaded
    result, places = evaluation.attacks[found.attack], found.fooled
    pairs = zip(found.labels[places].tolist(), found.worst_class[places].tolist(), strict=True)
    return Hardest(
        model=model,
        data=loaded.data_name,
        space=str(loaded.question.space),
        attack=found.attack,
        images=len(evaluation),
        poses=len(found.fooled_poses.poses),
        hardware=hardware(loaded.device),
        wrong_unmoved=int((~evaluation.natural_correct).sum()),
        fooled=len(places),
        classes=[
            Class(found.names[each.label], each.images, each.natural, each.attacks[result.attack])
            for each in evaluation.per_class()
        ],
        regions=list(_regions(found)),
        confusions=[
            Confusion(found.names[label], found.names[answer], images)
            for (label, answer), images in Counter(pairs).most_common()
        ],
        distances=_distances(found),
        pictures=[picture(found, place) for place in places[:keep].tolist()],
    )


def _regions(found: Answers) -> Iterator[Region]:
    """Cut the box by how far a pose turns, and how far it shifts along the axis of more."""
    right = found.measured.evaluation.natural_correct
    wrong_at = found.fooled_poses.unpack()[right].double().mean(0)
    turns, shifts = _sizes(found.fooled_poses.poses)
    worst_turns, worst_shifts = _sizes(found.worst_pose[found.fooled])
    for turn, turned in _parts(TURNS, "°"):
        for shift, shifted in _parts(SHIFTS, " px"):
            inside = turned(turns) & shifted(shifts)
            yield Region(
                *(turn, shift),
                poses=int(inside.sum()),
                wrong=float(wrong_at[inside].mean()) if inside.any() else 0.0,
                worst=int((turned(worst_turns) & shifted(worst_shifts)).sum()),
            )


@dataclass(frozen=True)
class _Between:
    """Whether sizes are at least one, and below another; a last one has nothing above it."""

    low: float
    high: float

    def __call__(self, sizes: Tensor) -> Tensor:
        return (sizes >= self.low - 1e-3) & (sizes < self.high - 1e-3)


def _parts(edges: Sequence[float], unit: str) -> Iterator[tuple[str, _Between]]:
    for low, high in pairwise(edges):
        yield f"{low:g}{unit} to below {high:g}{unit}", _Between(low, high)
    yield f"{edges[-1]:g}{unit}", _Between(edges[-1], float("inf"))


def _sizes(poses: Pose) -> tuple[Tensor, Tensor]:
    """How far poses turn and shift: degrees, and pixels of the larger of both shifts."""
    sizes = poses.values.abs()
    column = poses.chain.column_of
    turns = sizes[..., column["angle"]]
    return turns, sizes[..., [column["dx"], column["dy"]]].amax(-1)


def _distances(found: Answers) -> Distances:
    places = found.fooled
    labels, each = found.labels[places], torch.arange(len(found.labels))
    natural = found.natural[each, found.labels]
    stays = found.measured.evaluation.attacks[found.attack].correct
    of_label = found.worst[places, labels]
    above = (found.worst[places] > of_label[:, None]).sum(1)
    count = found.fooled_poses.unpack()[places].double().mean(1)
    return Distances(
        natural_confidence=_quartiles(natural[places]),
        natural_confidence_of_others=_quartiles(natural[stays]),
        confidence=_quartiles(found.worst[places].amax(1)),
        label_probability=_quartiles(of_label),
        smallest_size=_quartiles(found.fooled_poses.smallest.size[places]),
        fooling_poses=_quartiles(count),
        label_is_second=int((above == 1).sum()) / max(len(places), 1),
    )


def _quartiles(values: Tensor) -> list[float]:
    if not len(values):
        return []
    parts = torch.tensor(QUARTILES, dtype=torch.float64)
    return [round(each, 6) for each in values.double().quantile(parts).tolist()]


def picture(found: Answers, place: int) -> Picture:
    """Tell of one image."""
    label = int(found.labels[place])
    return Picture(
        place=place,
        label=found.names[label],
        natural_confidence=round(float(found.natural[place, label]), 4),
        answer=found.names[int(found.worst_class[place])],
        confidence=round(float(found.worst[place].max()), 4),
        pose=[round(each, 4) for each in found.worst_pose.values[place].tolist()],
        smallest_size=round(float(found.fooled_poses.smallest.size[place]), 4),
        fooling_poses=int(found.fooled_poses.unpack()[place].sum()),
    )


def shown(found: Answers, count: int) -> list[int]:
    """Places for the sheet: half of them the hardest, the others spread evenly over the rest."""
    places = found.fooled.tolist()
    first, rest = places[: count // 2], places[count // 2 :]
    wanted = min(count - len(first), len(rest))
    return first + [rest[(2 * turn + 1) * len(rest) // (2 * wanted)] for turn in range(wanted)]


def sheet(found: Answers, places: Sequence[int], *, across: int = 6) -> Figure:
    """Pairs of pictures: an image as it is and its label, and at its worst pose the answer."""
    down = -(-len(places) // across)
    figure = Figure(figsize=(2.1 * across, 1.55 * max(down, 1)), layout="constrained", dpi=110)
    panels = figure.subplots(max(down, 1), 2 * across, squeeze=False).reshape(-1, 2)
    moved = warp(found.measured.images.images.float() / 255, found.worst_pose.to("cpu"))
    for pair in panels:
        for axes in pair:
            axes.set_axis_off()
    for (left, right), place in zip(panels, places, strict=False):
        its = picture(found, place)
        image = found.measured.images.images[place].float() / 255
        _draw(left, image, its.label, its.natural_confidence, "black")
        _draw(right, moved[place], its.answer, its.confidence, WRONG)
    return figure


def _draw(axes: Axes, image: Tensor, answer: str, confidence: float, colour: str) -> None:
    axes.imshow(image.permute(1, 2, 0).clamp(0, 1).numpy())
    axes.set_title(f"{answer} {100 * confidence:.0f} %", fontsize=7, color=colour)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    found = answers(options)
    hardest(found, options.name or options.model, keep=options.keep).write(options.json)
    if options.sheet is not None:
        buffer = io.BytesIO()
        sheet(found, shown(found, options.pictures)).savefig(buffer, format="png")
        options.sheet.parent.mkdir(parents=True, exist_ok=True)
        write_whole(options.sheet, buffer.getvalue())


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", default="zoo:cifar10/l2-rob-wo10")
    add("--name", help="what the model is called; else as it is asked for")
    add("--data", default="cifar10")
    add("--attack", default="grid-775", help="a grid: all images try the same poses")
    add("--images", type=int, help="the first so many test images; all without")
    add("--json", type=Path, required=True, help="what was found")
    add("--state", type=Path, help="keep what was evaluated here, and go on with it")
    add("--keep", type=int, default=24, help="so many images are listed one by one")
    add("--sheet", type=Path, help="a PNG file to look at")
    add("--pictures", type=int, default=48, help="on the sheet")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


if __name__ == "__main__":
    main()
