"""Which λ each method has, and by what it was chosen: as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group
from rich.table import Table as RichTable

from upright.records import Reported
from upright.report.data import LambdaPoint
from upright.report.lines import spaced
from upright.report.model import Estimate
from upright.terminal import plain_text

__all__ = ["WeightChoice", "weights_to_markdown", "weights_to_terminal"]

_TEST, _HELD_OUT = "test set", "held-out images"


@dataclass(frozen=True, kw_only=True)
class WeightChoice:
    """What was measured of a method with each λ, and which λ that calls for."""

    dataset: str
    method: str
    tested: tuple[LambdaPoint, ...]
    """On the test set, in the order of λ."""
    held_out: tuple[LambdaPoint, ...]
    """On images that the runs held out of training."""
    by_test: float | None
    """The λ of the cells, as the paper chose it; None where nothing can be chosen."""
    by_held_out: float | None
    natural: Reported | None
    """The paper's, which does not print its λ."""
    grid: Reported | None


def weights_to_markdown(choices: Iterable[WeightChoice], *, metric: str = "grid-775") -> str:
    """Give a table in Markdown for each data set: a row for each λ that was measured."""
    return "\n".join(
        _markdown(dataset, some, metric) for dataset, some in _by_dataset(choices).items()
    )


def weights_to_terminal(choices: Iterable[WeightChoice], *, metric: str = "grid-775") -> Group:
    """Give the same for ``rich``."""
    return Group(
        *(_terminal(dataset, some, metric) for dataset, some in _by_dataset(choices).items())
    )


def _by_dataset(choices: Iterable[WeightChoice]) -> dict[str, list[WeightChoice]]:
    found: dict[str, list[WeightChoice]] = {}
    for choice in choices:
        found.setdefault(choice.dataset, []).append(choice)
    return found


def _headings(dataset: str, metric: str) -> tuple[str, ...]:
    first = f"{dataset}: natural / {metric}, %"
    return first, "λ", _TEST, "seeds", _HELD_OUT, "seeds", "chosen by", "paper"


def _markdown(dataset: str, choices: Sequence[WeightChoice], metric: str) -> str:
    rows = [
        _headings(dataset, metric),
        ("---", "---:", "---", "---:", "---", "---:", "---", "---"),
        *((f"`{name}`" if name else "", *rest) for name, *rest in _all_rows(choices)),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _terminal(dataset: str, choices: Sequence[WeightChoice], metric: str) -> RichTable:
    shown = RichTable(*_headings(dataset, metric), box=box.SIMPLE_HEAD)
    for row in _all_rows(choices):
        shown.add_row(*map(plain_text, row))
    return shown


def _all_rows(choices: Iterable[WeightChoice]) -> Iterator[tuple[str, ...]]:
    for choice in choices:
        yield from _rows(choice)


def _rows(choice: WeightChoice) -> Iterator[tuple[str, ...]]:
    """A row for each λ; what is the same for all stands in the first."""
    tested = {point.weight: point for point in choice.tested}
    apart = {point.weight: point for point in choice.held_out}
    ends = (spaced(choice.method), _both(choice.natural, choice.grid))
    for weight in sorted(tested.keys() | apart.keys()):
        name, paper = ends
        measured = (*_point(tested.get(weight)), *_point(apart.get(weight)))
        yield name, f"{weight:g}", *measured, _chosen_by(choice, weight), paper
        ends = ("", "")


def _point(point: LambdaPoint | None) -> tuple[str, str]:
    return ("", "") if point is None else (_both(point.natural, point.grid), str(point.grid.n))


def _both(natural: Estimate | Reported | None, grid: Estimate | Reported | None) -> str:
    if natural is None or grid is None:
        return ""
    return f"{100 * natural.mean:.2f} / {100 * grid.mean:.2f}"


def _chosen_by(choice: WeightChoice, weight: float) -> str:
    """By what a λ was chosen; where there is no other, nothing was."""
    ways = (
        (_TEST, choice.tested, choice.by_test),
        (_HELD_OUT, choice.held_out, choice.by_held_out),
    )
    if len({point.weight for _, points, _ in ways for point in points}) < 2:
        return "no other tried"
    told = (_told(way, points, best, weight) for way, points, best in ways if len(points) > 1)
    return ", ".join(each for each in told if each)


def _told(way: str, points: Sequence[LambdaPoint], best: float | None, weight: float) -> str:
    means = {point.weight: point.grid.mean for point in points}
    if weight == best:
        return way
    if best is not None and weight in means and means[weight] > means[best]:
        return f"({way}: too few seeds)"
    return ""
