"""What was measured, as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from rich.console import Console
from rich.table import Table

from upright.evaluation import ClassAccuracy, Evaluation, Interval
from upright.fooled import Curve, FooledPoses
from upright.space import Space
from upright.terminal import plain_console, plain_text

__all__ = ["name_of", "roomy_console", "show_classes", "show_evaluation", "show_poses"]

_COLUMNS = 80
"""What a table of figures needs."""
_CLASSES_SHOWN = 20
_FEW = 10
"""Poses drawn from a grid, as the paper's worst-of-10 draws them from the box."""


def roomy_console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error, as wide as the terminal but no narrower than a table.

    A narrow terminal breaks lines, but every figure is there; ``rich`` would cut them off.
    """
    console = plain_console(stderr=stderr)
    console.width = max(console.width, _COLUMNS)
    return console


def show_evaluation(evaluation: Evaluation, *, title: str, space: Space, console: Console) -> None:
    """Print an evaluation; an oracle's is marked in its title, in every line and below.

    The title has paths, of any length. It stands on a line of its own, which nothing breaks: who
    looks for a name in the output finds it.
    """
    first = "ORACLE " if evaluation.oracle else ""
    console.print(plain_text(first + title, "bold"), soft_wrap=True)
    console.print(_table(evaluation))
    for line in (space.in_words(), *evaluation.notes):
        console.print(plain_text(line, "dim"), soft_wrap=True)


def show_classes(evaluation: Evaluation, classes: Sequence[str], *, console: Console) -> None:
    """Print the accuracy of each class under each attack."""
    console.print(_class_table(evaluation, classes))


def show_poses(evaluation: Evaluation, *, console: Console) -> None:
    """Print what follows from the poses that fool images, for attacks that know all of them."""
    known = {name: found.fooled for name, found in evaluation.attacks.items()}
    rows = {name: fooled for name, fooled in known.items() if fooled is not None}
    if rows:
        console.print(_pose_table(rows))


def _table(evaluation: Evaluation) -> Table:
    """A line for each attack; accuracies in percent."""
    mark = " (oracle)" if evaluation.oracle else ""
    table = Table()
    table.add_column("attack", overflow="fold")
    top = f"top-{evaluation.top} " if evaluation.top > 1 else ""
    for heading in (f"{top}accuracy %", "95 % interval", "forward passes", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    attacks = evaluation.attacks.values()
    seconds = evaluation.seconds - sum(result.seconds for result in attacks)
    natural, interval = evaluation.natural_accuracy, evaluation.natural_interval
    table.add_row(f"natural{mark}", *_figures(natural, interval, len(evaluation), seconds))
    for result in attacks:
        figures = _figures(result.accuracy, result.interval, result.forward_passes, result.seconds)
        table.add_row(plain_text(result.attack + mark), *figures)
    return table


def _class_table(evaluation: Evaluation, names: Sequence[str]) -> Table:
    """Lay out the accuracies of each class in percent; of many, those that attacks leave least of.

    Beside them stands the other class that it is most often taken for at the worst poses.
    """
    classes = sorted(evaluation.per_class(), key=_hardest_first)
    shown = classes[:_CLASSES_SHOWN]
    some = f"the {len(shown)} hardest of {len(classes)} classes"
    table = Table(title="each class" if len(shown) == len(classes) else some)
    table.add_column("class", overflow="fold")
    for heading in ("images", "natural %", *(f"{name} %" for name in evaluation.attacks)):
        table.add_column(heading, justify="right")
    table.add_column("taken for", overflow="fold")
    for each in shown:
        figures = [f"{100 * share:.1f}" for share in (each.natural, *each.attacks.values())]
        taken = _taken_for(evaluation, each.label)
        other = "" if taken is None else name_of(taken, names)
        name = plain_text(name_of(each.label, names))
        table.add_row(name, f"{each.images:,}", *figures, plain_text(other))
    return table


def _pose_table(attacks: Mapping[str, FooledPoses]) -> Table:
    """Lay out accuracies in percent: over poses, over some of them, in a smaller box; and the size
    of the smallest pose that fools an image, as a part of the box."""
    table = Table(title="from the answers at all poses")
    table.add_column("attack", overflow="fold")
    for heading in ("mean %", f"worst of {_FEW} %", "half box %", "consistency %"):
        table.add_column(heading, justify="right")
    table.add_column("median size", justify="right")
    for name, fooled in attacks.items():
        worst_of, inner = fooled.worst_of, _in_half_the_box(fooled.by_size)
        shares = (worst_of(1), worst_of(_FEW), inner, fooled.consistency)
        figures = ["–" if math.isnan(share) else f"{100 * share:.2f}" for share in shares]
        table.add_row(plain_text(name), *figures, _median_size(fooled))
    return table


def _in_half_the_box(by_size: Curve) -> float:
    """NaN where nothing was tried there but images as they are."""
    tried = (by_size.at > 0) & (by_size.at <= 0.5)
    return by_size(0.5) if tried.any() else math.nan


def _median_size(fooled: FooledPoses) -> str:
    """The median size of the smallest pose that fools an image which is right as it is."""
    sizes = fooled.smallest.size
    found = sizes[sizes.isfinite() & ~fooled.natural_fooled]
    return f"{float(found.median()):.2f}" if len(found) else "–"


def name_of(label: int, names: Sequence[str]) -> str:
    """Give the name of a class; data of fewer classes than the model has have none for the rest."""
    return names[label] if label < len(names) else str(label)


def _hardest_first(each: ClassAccuracy) -> tuple[float, float, int]:
    return min(each.attacks.values(), default=each.natural), each.natural, each.label


def _taken_for(evaluation: Evaluation, label: int) -> int | None:
    """The class that a class's images are taken for at their worst poses, of all attacks."""
    its = evaluation.labels == label
    seen = [
        result.worst_class[its & (result.worst_class != label)]
        for result in evaluation.attacks.values()
        if result.worst_class is not None
    ]
    others = torch.cat(seen) if seen else its.new_empty(0)
    return int(others.mode().values) if len(others) else None


def _figures(accuracy: float, interval: Interval, passes: int, seconds: float) -> list[str]:
    return [
        f"{100 * accuracy:.2f}",
        f"{100 * interval.low:.2f} to {100 * interval.high:.2f}",
        f"{passes:,}",
        f"{seconds:.1f}",
    ]
