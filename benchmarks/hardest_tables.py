"""What ``hardest.py`` found of images that a classifier still gets wrong: its file and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from upright.files import write_whole

QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Class:
    """Accuracies over the images of one class, as fractions."""

    name: str
    images: int
    natural: float
    attacked: float


@dataclass(frozen=True)
class Region:
    """Poses of a grid whose turn and shift are about as large; of images that are right unmoved."""

    turn: str
    shift: str
    poses: int
    wrong: float
    """The share of wrong answers over these images and poses."""
    worst: int
    """For how many of the fooled images the worst pose lies here."""


@dataclass(frozen=True)
class Confusion:
    """How often the answer at the worst pose is a certain wrong class."""

    label: str
    answer: str
    images: int


@dataclass(frozen=True)
class Distances:
    """How far fooled images are from being right: quartiles, but for the last."""

    natural_confidence: list[float]
    """In the right answer, unmoved."""
    natural_confidence_of_others: list[float]
    """The same of images that stay right at all poses."""
    confidence: list[float]
    """In the wrong answer, at the worst pose."""
    label_probability: list[float]
    """Of the label, at the worst pose."""
    smallest_size: list[float]
    """Of the smallest pose that fools, as a part of the box: see ``upright.fooled.box_sizes``."""
    fooling_poses: list[float]
    """The share of the poses that fool an image."""
    label_is_second: float
    """The share of images whose label is the second answer at the worst pose."""


@dataclass(frozen=True)
class Picture:
    """One image, as it is and at its worst pose."""

    place: int
    """In the data, from 0."""
    label: str
    natural_confidence: float
    answer: str
    confidence: float
    pose: list[float]
    """``dx`` and ``dy`` in pixels, ``angle`` in degrees."""
    smallest_size: float
    fooling_poses: int


@dataclass(frozen=True)
class Hardest:
    """All of it. Fooled images are right as they are, and wrong under the attack."""

    model: str
    data: str
    space: str
    attack: str
    images: int
    """The first so many test images."""
    poses: int
    hardware: str
    wrong_unmoved: int
    fooled: int
    classes: list[Class]
    regions: list[Region]
    confusions: list[Confusion]
    distances: Distances
    pictures: list[Picture]
    """The fooled images of highest loss, the highest first."""

    def write(self, path: Path) -> None:
        write_whole(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @staticmethod
    def read(path: Path) -> Hardest:
        content = json.loads(path.read_text())
        lists = {
            "classes": Class,
            "regions": Region,
            "confusions": Confusion,
            "pictures": Picture,
        }
        read = {name: [kind(**each) for each in content[name]] for name, kind in lists.items()}
        return Hardest(**content | read | {"distances": Distances(**content["distances"])})


def sections(found: Iterable[Hardest]) -> dict[str, str]:
    """What the documentation shows, by the name of its section."""
    return {"hardest": "\n\n".join(_section(each) for each in found)}


def _section(found: Hardest) -> str:
    right = found.images - found.wrong_unmoved
    return "\n\n".join(
        [
            f"**`{found.model}`**, the first {found.images:,} test images of `{found.data}`, "
            f"`{found.attack}` on `{found.space}`, on {found.hardware}: "
            f"{found.wrong_unmoved:,} images are wrong as they are; of the {right:,} others "
            f"{found.fooled:,} ({_percent(found.fooled / max(right, 1))} %) are fooled.",
            "Where they are fooled:",
            _regions(found),
            "How far they are from being right:",
            _distances(found),
            "Which classes they have, and which they are taken for:",
            _classes(found),
        ]
    )


def _regions(found: Hardest) -> str:
    total = sum(region.poses for region in found.regions)
    rows = [
        [
            *(region.turn, region.shift),
            _percent(region.poses / total),
            _percent(region.wrong),
            _percent(region.worst / max(found.fooled, 1)),
        ]
        for region in found.regions
    ]
    head = ["turn", "larger shift", "of the poses, %", "wrong answers, %", "worst poses, %"]
    return table(head, rows, text=2, numbers=3)


def _distances(found: Hardest) -> str:
    its = found.distances
    measured = {
        "confidence in the right answer, unmoved, %": its.natural_confidence,
        "the same, of images that are not fooled, %": its.natural_confidence_of_others,
        "confidence in the wrong answer, worst pose, %": its.confidence,
        "probability of the label there, %": its.label_probability,
        "size of the smallest pose that fools, % of the box": its.smallest_size,
        f"of the {found.poses} poses so many fool, %": its.fooling_poses,
    }
    rows = [[name, *map(_percent, values)] for name, values in measured.items()]
    head = ["fooled images", "quarter", "median", "three quarters"]
    quartiles = table(head, rows, text=1, numbers=3)
    second = _percent(its.label_is_second)
    return f"{quartiles}\n\nOf {second} % of them the label is the second answer at the worst pose."


def _classes(found: Hardest) -> str:
    rows = []
    for each in found.classes:
        taken = [confusion for confusion in found.confusions if confusion.label == each.name]
        words = ", ".join(f"{confusion.answer} {confusion.images}" for confusion in taken[:3])
        shares = [_percent(each.natural), _percent(each.attacked)]
        rows.append([each.name, str(each.images), *shares, words])
    head = ["class", "images", "natural, %", f"{found.attack}, %", "fooled into, at the worst pose"]
    return table(head, rows, text=1, numbers=3)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, text: int, numbers: int) -> str:
    """A table in Markdown: so many columns of text, then so many of numbers, then text again."""
    rule = ["---"] * text + ["---:"] * numbers + ["---"] * (len(head) - text - numbers)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
