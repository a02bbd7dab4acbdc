"""What the explorer shows: images, each model's answers over a grid of poses, what follows of them.

``saved`` has the files that hold it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from upright.fooled import FooledPoses, pack_bits
from upright.pose import Pose
from upright.records import Record
from upright.report.model import Source
from upright.space import Space
from upright.window import Window

__all__ = [
    "Array",
    "Exhibition",
    "SavedModel",
    "Shown",
    "fooled_poses",
    "record_id",
    "titles",
    "told_apart",
]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Shown:
    """Images chosen at random from the data, and the grid of poses at which models answer."""

    dataset: str
    split: str
    classes: tuple[str, ...]
    data_digest: dict[str, str]
    """SHA-256 of all images and labels that were evaluated, as in records."""
    images: Array
    """uint8, N x C x H x W: those that are explored at all poses of the grid, canvas included."""
    canvas: int
    """Pixels of black around all images, as in the evaluation."""
    labels: Array
    """int64, M >= N: of the images that vary along one axis only, too. The first N are the
    explored."""
    places: Array
    """int64, M: where each lies in the data."""
    space: Space
    """With limits in pixels."""
    grid: dict[str, Array]
    """float32: the values of each axis of the space, by its name and in its order."""
    along: str
    """The axis along which M images vary, the rest of their pose zero."""
    view: int | None = None
    """The central so many pixels of the moved images are what models saw; None for all of them."""

    @property
    def seen(self) -> Window:
        """The part of the images that models saw."""
        return Window.of(torch.empty(self.images.shape[-2:]), self.view, margin=self.canvas)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many values the grid has on each axis."""
        return tuple(len(values) for values in self.grid.values())

    def poses(self) -> Pose:
        """Give all poses of the grid, the last axis fastest."""
        axes = [torch.as_tensor(values) for values in self.grid.values()]
        parts = [part.flatten() for part in torch.meshgrid(*axes, indexing="ij")]
        return Pose(torch.stack(parts, -1), self.space.chain)

    def poses_along(self) -> Pose:
        """Give the poses along the one axis."""
        return self.space.pose(**{self.along: torch.as_tensor(self.grid[self.along])})

    def pose_at(self, place: Sequence[int]) -> Pose:
        """Give the single pose that has this place on each axis."""
        parts = zip(self.grid.values(), place, strict=True)
        return Pose(torch.tensor([[float(axis[at]) for axis, at in parts]]), self.space.chain)

    def class_name(self, number: int) -> str:
        """Name a class; a model may know more of them than the data have names for."""
        return self.classes[number] if number < len(self.classes) else str(number)


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedModel:
    """One model's answers. Classes are uint8, or uint16 or uint32 where there are more."""

    name: str
    """As it was asked for on the command line."""
    method: str | None
    """The objective, for a run of `upright train`; for another model, what it is called."""
    seed: int | None
    attack: str
    """The grid, by its name."""
    measured: dict[str, float]
    """Accuracies as fractions over all images: ``nat``, and one by the name of each attack."""
    record: str | None
    """The ``record_id`` of the evaluation, under which its record is found where it was kept."""
    origin: dict[str, Any]
    """Commit, versions, hardware and time of the evaluation."""
    predicted: Array
    """N x the values of each axis: the class."""
    confidence: Array
    """uint8, of the same shape: the softmax probability of that class, in 255ths."""
    natural: Array
    """N: the class of the image as it is."""
    natural_confidence: Array
    """uint8, N, in 255ths."""
    worst: Array
    """int64, N: the flat index of the worst pose in the grid."""
    predicted_along: Array
    """M x the values of ``Shown.along``: the class there, the rest of the pose zero."""
    natural_correct: Array
    """bool, all images."""
    grid_correct: Array
    """bool, all images: right at every pose of the grid."""
    others: Array | None = None
    """N x the values of each axis x some: the classes that are the likeliest after the first, in
    their order. None where the model has few classes."""
    others_confidence: Array | None = None
    """uint8, of the same shape: their probabilities, in 255ths."""


@dataclass(frozen=True)
class Exhibition:
    """A folder of saved arrays: images, and models that answered to them, in order of their file
    names."""

    shown: Shown
    models: tuple[SavedModel, ...]
    unguarded: tuple[Path, ...] = ()
    """Files without a digest, as they were saved before there was one."""
    called: str = ""
    """How people tell it from others, where the name of the data set does not."""

    @property
    def title(self) -> str:
        return self.called or self.shown.dataset


def record_id(record: Record | Source) -> str:
    """Name a record by its run and its time: the recipe's hash, the seed, and when it was done."""
    time = re.sub(r"\D", "", record.finished)[:14]
    return f"{record.recipe_hash}-{record.seed}-{time}"


def fooled_poses(shown: Shown, model: SavedModel) -> FooledPoses:
    """Give which poses fool a model, of the images that are explored at all poses."""
    explored = len(shown.images)
    labels = shown.labels[:explored]
    wrong = model.predicted.reshape(explored, -1) != labels[:, None]
    natural = torch.as_tensor(model.natural != labels)
    return FooledPoses(shown.poses(), pack_bits(torch.as_tensor(wrong)), natural)


def told_apart(exhibitions: Sequence[Exhibition]) -> tuple[Exhibition, ...]:
    """Call exhibitions of one data set by its split and their spaces, too, or by number."""
    named: list[Exhibition] = []
    sets, before = Counter(each.title for each in exhibitions), Counter[str]()
    for each in exhibitions:
        called = each.title
        if sets[called] > 1:
            called += f", {each.shown.split}, {each.shown.space}"
        before[called] += 1
        number = f" ({before[called]})" if before[called] > 1 else ""
        named.append(replace(each, called=called + number))
    return tuple(named)


def titles(models: Sequence[SavedModel]) -> list[str]:
    """Give short titles by which people tell models apart.

    That is the method or name, with the seed, or all of its name, where two share it.
    """
    plain = [model.method or model.name for model in models]
    seeded = [
        title if Counter(plain)[title] == 1 or model.seed is None else f"{title}, seed {model.seed}"
        for title, model in zip(plain, models, strict=True)
    ]
    return [
        title if Counter(seeded)[title] == 1 else f"{title}, {model.name}"
        for title, model in zip(seeded, models, strict=True)
    ]
