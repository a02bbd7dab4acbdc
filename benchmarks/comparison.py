"""One table: this project, Foolbox and ART on the same networks and images.

Why a tool's accuracy differs is shown by asking this project about the poses that the tool tries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import ClassVar

import torch
from rivals import (
    LEGEND,
    Answer,
    art_answer,
    art_poses,
    foolbox_answer,
    foolbox_poses,
    is_installed,
)
from timing import Counted, interleave, machine, print_table, seconds_of
from torch import Tensor, nn

from upright import CandidateSearch, Pose, Space, evaluate, warp
from upright.data import load_data
from upright.objective import parse_objective
from upright.train import Recipe, load_network, train

__all__ = ["Row", "compare"]

OBJECTIVES = {"weak": "std", "robust": "KL(rob, Wo-10; λ=1)"}
INSTALL = "pip install -c constraints.txt '.[bench]'"
EVERY, ALONE, FOOLBOX, ART = "upright, every pose", "upright, accuracy alone", "Foolbox", "ART"
FASTER_PER_POSE, FASTER_TO_THE_ANSWER = 1.0, 5.0


@dataclass(frozen=True)
class Row:
    """A tool's answer and what it cost."""

    network: str
    tool: str
    poses: int
    answer: Answer
    passes: int = 0
    seconds: float | None = None
    """None for an answer that explains another one's."""
    note: str = ""

    @property
    def accuracy(self) -> float:
        return float(self.answer.correct.double().mean())

    @property
    def images_poses_a_second(self) -> float | None:
        """How fast poses of images are tried; those that were not tried do not count."""
        return self.seconds and self.passes / self.seconds

    def cells(self) -> tuple[str, ...]:
        speed = self.images_poses_a_second
        return (
            f"{self.network}: {self.tool}",
            f"{self.poses}",
            f"{self.passes:,}" if self.passes else "",
            f"{self.seconds:.2f}" if self.seconds else "",
            f"{speed:,.0f}" if speed else "",
            f"{100 * self.accuracy:.1f} %",
            self.note,
        )

    def figures(self) -> dict[str, object]:
        return {
            "network": self.network,
            "tool": self.tool,
            "images": len(self.answer.correct),
            "poses": self.poses,
            "passes": self.passes,
            "seconds": self.seconds,
            "images_poses_a_second": self.images_poses_a_second,
            "accuracy": self.accuracy,
            "note": self.note,
        }


@dataclass(frozen=True)
class Listed(CandidateSearch):
    """A search of the poses that it is given."""

    shared: ClassVar[bool] = True

    poses: Pose

    def __str__(self) -> str:
        return "listed"

    @property
    def passes_per_image(self) -> int:
        return len(self.poses)

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        del space, count, generator
        return self.poses[:, None]


@dataclass(frozen=True)
class Subject:
    """A network and the images that all tools are asked about."""

    name: str
    model: Counted
    images: Tensor
    labels: Tensor

    def grid_answer(self, *, only_accuracy: bool) -> Answer:
        found = evaluate(self.model, (self.images, self.labels), only_accuracy=only_accuracy)
        return Answer(found.attacks["grid-775"].correct)

    def fooled_by(self, poses: Pose) -> Tensor:
        """Say which poses fool which images: bool, images x poses."""
        result = evaluate(self.model, (self.images, self.labels), attacks=[Listed(poses)])
        fooled = result.attacks["listed"].fooled
        assert fooled is not None
        return fooled.unpack()

    def correct_after(self, *steps: Pose) -> Tensor:
        """Say which images are correctly classified after some poses, each warped by itself."""
        moved = reduce(warp, steps, self.images)
        with torch.no_grad():
            logits: Tensor = self.model(moved)
        return logits.argmax(1) == self.labels


@dataclass(frozen=True)
class Tool:
    """A way to ask for grid-775."""

    name: str
    ask: Callable[[Subject], Answer]
    poses: int = 775
    """How many it tries, duplicates left out."""
    note: str = ""
    library: str = "upright"
    quick: bool = True
    """Whether it can be asked several times within the patience of a benchmark."""


TOOLS = (
    Tool(EVERY, lambda it: it.grid_answer(only_accuracy=False)),
    Tool(ALONE, lambda it: it.grid_answer(only_accuracy=True)),
    Tool(
        FOOLBOX,
        lambda it: foolbox_answer(it.model, it.images, it.labels),
        note="[1]",
        library="foolbox",
    ),
    Tool(
        ART,
        lambda it: art_answer(it.model, it.images, it.labels),
        poses=155,
        note="[2]",
        library="art",
        quick=False,
    ),
)


def compare(
    *,
    images: int,
    repeats: int,
    steps: int,
    runs: Path,
    weak: Path | None = None,
    robust: Path | None = None,
) -> list[dict[str, object]]:
    """Ask every tool about both networks, print one table, and give its rows for JSON."""
    data = load_data("glyphs", split="test", limit=images)
    rows: list[Row] = []
    for name, given in (("weak", weak), ("robust", robust)):
        model = load_network(given) if given else _trained(OBJECTIVES[name], steps, runs)
        subject = Subject(name, Counted(model), data.images.float() / 255, data.labels)
        answers = _asked(subject, repeats)
        rows += [*answers.values(), *_explained(subject, answers)]
    print_table(
        f"grid-775 on {images} glyphs, {machine('cpu')}",
        ("network: tool", "poses", "passes", "seconds", "images×poses/s", "accuracy", "note"),
        [row.cells() for row in rows],
    )
    missing = [tool.library for tool in TOOLS if not is_installed(tool.library)]
    print(f"not installed: {', '.join(missing)}; {INSTALL}" if missing else LEGEND)
    for verdict in _verdicts({(row.network, row.tool): row for row in rows}):
        print(verdict)
    return [row.figures() for row in rows]


def _trained(objective: str, steps: int, runs: Path) -> nn.Module:
    """Train a small network, or take it from an earlier call."""
    recipe = Recipe(
        objective=parse_objective(objective),
        data="glyphs",
        train_images=4000,
        model="convnet",
        steps=steps,
        learning_rate=0.01,
        flips=False,
    )
    return train(recipe, runs / recipe.hash, resume=True, progress=True).model


def _asked(subject: Subject, repeats: int) -> dict[str, Row]:
    """Ask all tools that are installed: once for the answer, then in turns for the time."""
    tools = [tool for tool in TOOLS if is_installed(tool.library)]
    rows = {tool.name: _row(subject, tool) for tool in tools}
    jobs = {tool.name: partial(tool.ask, subject) for tool in tools if tool.quick}
    timings = interleave(repeats, jobs)
    return rows | {name: replace(rows[name], seconds=timings.median(name)) for name in jobs}


def _row(subject: Subject, tool: Tool) -> Row:
    answers: list[Answer] = []
    subject.model.take()
    seconds = seconds_of(lambda: answers.append(tool.ask(subject)))
    passes = sum(subject.model.take())
    return Row(subject.name, tool.name, tool.poses, answers[0], passes, seconds, tool.note)


def _explained(subject: Subject, rows: dict[str, Row]) -> list[Row]:
    """Ask this project about the poses of the other tools."""

    def row(what: str, poses: int, correct: Tensor, other: Row) -> Row:
        same = int((correct == other.answer.correct).sum())
        note = f"{same} of {len(correct)} as {other.tool}"
        return Row(subject.name, f"upright, {what}", poses, Answer(correct), note=note)

    explained = []
    if foolbox := rows.get(FOOLBOX):
        correct = ~subject.fooled_by(foolbox_poses()).any(1)
        explained.append(row("Foolbox's poses", 775, correct, foolbox))
    if art := rows.get(ART):
        shift, turn = art.answer.one_for_all
        explained += [
            row("ART's poses", 155, ~subject.fooled_by(art_poses()).any(1), art),
            row("ART's one pose", 1, subject.correct_after(shift.compose(then=turn)), art),
            row("that in two steps", 1, subject.correct_after(shift, turn), art),
        ]
    return explained


def _verdicts(rows: dict[tuple[str, str], Row]) -> list[str]:
    """Hold the speed against what it must be."""
    verdicts = []
    for network in ("weak", "robust"):
        if (network, FOOLBOX) in rows:
            ours, theirs = rows[network, EVERY], rows[network, FOOLBOX]
            faster = (ours.images_poses_a_second or 0) / (theirs.images_poses_a_second or 1)
            verdicts.append(_verdict(f"{network}, per pose", faster, FASTER_PER_POSE))
    if ("weak", FOOLBOX) in rows:
        faster = (rows["weak", FOOLBOX].seconds or 0) / (rows["weak", ALONE].seconds or 1)
        verdicts.append(_verdict("weak, to the answer", faster, FASTER_TO_THE_ANSWER))
    return verdicts


def _verdict(what: str, faster: float, least: float) -> str:
    met = "met" if faster >= least else "MISSED"
    return f"{what}: {faster:.1f} times as fast as Foolbox; at least {least:g}: {met}"
