"""What ``photographs.py`` measured: its attacks, its file about Foolbox, and its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from photograph_models import PRETRAINED

from upright.files import write_whole
from upright.intervals import wilson_interval
from upright.records import Record

__all__ = ["ATTACKS", "GRID", "SPACE", "Asked", "read_asked", "sections", "write_asked"]

SPACE = "shift(10%) rotate(30)"
GRID = "grid-5x5x7"
ATTACKS = ("wo-10", GRID, "refine-300")


@dataclass(frozen=True)
class Cost:
    """What an answer took."""

    cpu_seconds: float
    """Of all threads together."""
    passes: int
    """Images that the network was shown."""


@dataclass(frozen=True)
class Asked:
    """What Foolbox and this project said of a grid, and what that cost."""

    model: str
    images: int
    grid: str
    accuracy: float
    cost: Cost
    foolbox_accuracy: float
    foolbox_cost: Cost
    accuracy_on_foolbox_poses: float
    """By this project, under the poses that Foolbox tries."""
    machine: str


def write_asked(path: Path, known: Iterable[Asked]) -> None:
    write_whole(path, (json.dumps([asdict(each) for each in known], indent=1) + "\n").encode())


def read_asked(path: Path) -> list[Asked]:
    """Read what was written; a file that is not there has nothing."""
    if not path.exists():
        return []
    known = json.loads(path.read_text())
    costs = ("cost", "foolbox_cost")
    return [Asked(**each | {name: Cost(**each[name]) for name in costs}) for each in known]


def sections(records: Iterable[Record], known: Sequence[Asked]) -> dict[str, str]:
    """What the documentation shows, by the names of its sections."""
    by_title = {record.method: record for record in records}
    order = [each.title for each in PRETRAINED.values()]
    found = [by_title[title] for title in order if title in by_title]
    return {
        "photographs": _accuracies(found),
        "packages": _packages(),
        "foolbox": _foolbox(sorted(known, key=lambda each: order.index(each.model))),
    }


def _accuracies(records: Sequence[Record]) -> str:
    """Accuracies in per cent, with intervals, a row for each classifier."""
    lines = [
        _row("classifier", "pixels", "natural", *(f"`{name}`" for name in ATTACKS), "passes"),
        _row("---", *["---:"] * (3 + len(ATTACKS))),
    ]
    for record in records:
        cells = [_cell(record.measured[name], record.images) for name in ("nat", *ATTACKS)]
        side = next(each.side for each in PRETRAINED.values() if each.title == record.method)
        lines.append(_row(record.method, str(side), *cells, f"{record.forward_passes:,}"))
    images = ", ".join(dict.fromkeys(f"{record.images}" for record in records))
    where = ", ".join(dict.fromkeys(record.hardware for record in records))
    return "\n".join(lines) + f"\n\nOf {images} photographs; on {where}."


def _cell(share: float, images: int) -> str:
    interval = wilson_interval(round(share * images), images)
    return f"{100 * share:.0f} ({100 * interval.low:.0f}–{100 * interval.high:.0f})"


def _packages() -> str:
    lines = [_row("classifier", "package", "licence"), _row("---", "---", "---")]
    for each in PRETRAINED.values():
        registry = "npm" if "npmjs" in each.package.index else "PyPI"
        lines.append(_row(each.title, f"{registry} `{each.package}`", each.package.licence))
    return "\n".join(lines)


def _foolbox(known: Sequence[Asked]) -> str:
    """Accuracies in per cent, seconds and passes, of both tools."""
    lines = [
        _row("classifier", "upright", "CPU s", "passes", "Foolbox", "CPU s", "passes", *_SAME),
        _row("---", *["---:"] * 7),
    ]
    for each in known:
        ours, theirs = _spent(each.cost), _spent(each.foolbox_cost)
        accuracies = (each.accuracy, each.foolbox_accuracy, each.accuracy_on_foolbox_poses)
        first, second, same = (f"{100 * share:.0f}" for share in accuracies)
        lines.append(_row(each.model, first, *ours, second, *theirs, same))
    where = ", ".join(dict.fromkeys(each.machine for each in known))
    return "\n".join(lines) + (f"\n\nMeasured on: {where}." if where else "")


_SAME = ("upright, Foolbox' poses",)


def _spent(cost: Cost) -> tuple[str, str]:
    return f"{cost.cpu_seconds:.0f}", f"{cost.passes:,}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
