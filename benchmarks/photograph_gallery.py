"""Draw photographs that pretrained classifiers know, upright and tipped over.

    python benchmarks/photograph_gallery.py --out docs/images/photographs.png

Each picture is at the worst pose of a grid for the classifier. It shows what the classifier sees;
the photographs go on around that, so that little of it is black. What a classifier says to a
photograph as it is stands for its label.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from photograph_data import class_names, free_photographs
from photograph_models import PRETRAINED
from photograph_tables import GRID, SPACE
from torch import Tensor

from upright import Pose, evaluate, warp
from upright.files import write_whole

MODELS = ("mobilenet_v1", "efficientnet_lite0", "resnet50")
AROUND = 1.25
"""The side of the photographs, as a multiple of what is seen of them."""
WRONG = "#b30000"


@dataclass(frozen=True)
class Tipped:
    """Photographs as one classifier saw them, in its own size."""

    title: str
    upright: Tensor
    """N x 3 x side x side."""
    names: list[str]
    """What it says to them."""
    moved: Tensor
    """The same at their worst poses."""
    poses: Pose
    names_moved: list[str]


def tipped(name: str) -> Tipped:
    """Ask one classifier."""
    pretrained, classes = PRETRAINED[name], class_names()
    model, side = pretrained.build(), pretrained.side
    images = free_photographs(round(AROUND * side)).float() / 255
    still = Pose(torch.zeros(len(images), 3))
    seen = warp(images, still, view=side)
    labels = _answers(model, seen)
    result = evaluate(model, (images, labels), attacks=[GRID], space=SPACE, view=side)
    poses, classes_there = result.attacks[GRID].worst_pose, result.attacks[GRID].worst_class
    assert poses is not None
    assert classes_there is not None
    return Tipped(
        title=pretrained.title,
        upright=seen,
        names=[classes[label] for label in labels.tolist()],
        moved=warp(images, poses, view=side),
        poses=poses,
        names_moved=[classes[label] for label in classes_there.tolist()],
    )


@torch.no_grad()
def _answers(model: torch.nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = model(images)
    return logits.argmax(1)


def draw(found: Sequence[Tipped]) -> Figure:
    """A row for each photograph: as it is, then tipped over for each classifier."""
    rows, columns = len(found[0].upright), 1 + len(found)
    figure = Figure(figsize=(2.1 * columns, 2.95 * rows), layout="constrained", dpi=90)
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, axes in enumerate(panels):
        said = "\n".join(f"{each.title}: {each.names[row]}" for each in found)
        _picture(axes[0], found[0].upright[row], "as it is", said)
        for panel, each in zip(axes[1:], found, strict=True):
            name, pose = each.names_moved[row], _words(each.poses[row])
            changed = name != each.names[row]
            _picture(panel, each.moved[row], name, f"{each.title}\n{pose}", wrong=changed)
    return figure


def _picture(axes: Axes, image: Tensor, answer: str, below: str, *, wrong: bool = False) -> None:
    axes.imshow(image.permute(1, 2, 0).clamp(0, 1).numpy())
    axes.set_title(answer, fontsize=10, weight="bold", color=WRONG if wrong else "black")
    axes.set_xlabel(below, fontsize=8)
    axes.set(xticks=[], yticks=[])


def _words(pose: Pose) -> str:
    dx, dy, angle = pose.values.tolist()
    shift = f"{dx:+.0f}, {dy:+.0f} px" if dx or dy else ""
    turn = f"{angle:+.0f}°" if angle else ""
    return ", ".join(part for part in (turn, shift) if part).replace("-", "−") or "as it is"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=PRETRAINED, default=list(MODELS))
    parser.add_argument("--out", type=Path, required=True, help="a PNG file")
    options = parser.parse_args(arguments)
    buffer = io.BytesIO()
    figure = draw([tipped(name) for name in options.models])
    figure.savefig(buffer, format="png", metadata={"Software": None})
    write_whole(options.out, buffer.getvalue())


if __name__ == "__main__":
    main()
