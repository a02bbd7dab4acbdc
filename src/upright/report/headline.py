"""The accuracies that a front page shows: a few methods, every data set, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from upright.records import Reported
from upright.report.lines import spaced
from upright.report.methods import measured_methods
from upright.report.model import Cell, Estimate, Table

__all__ = ["headline_to_markdown"]

_METHODS = {
    "std": "usual training",
    "std*": "random turns and shifts",
    "AT(rob,Wo-10)": "the worst of 10 poses",
    "KL(rob,Wo-10)": "that, with a penalty",
    "L2(rob,Wo-10)": "that, with another",
    "KL-C(mix,S-PGD)": "the paper's best on CIFAR-10",
}
_DATA_SETS = ("CIFAR-10", "SVHN", "CIFAR-100")


def headline_to_markdown(tables: Iterable[Table]) -> str:
    """Give one table in Markdown, of data sets that have records, and say over how many seeds."""
    found = measured_methods(tables)
    names = [name for name in _DATA_SETS if name in found]
    of_method = {method: [found[name].get(method, {}) for name in names] for method in _METHODS}
    headings = [part for name in names for part in (f"{name}, %", "paper")]
    rows = [
        ("trained by: natural → grid-775", *headings),
        ("---", *("---:" for _ in headings)),
        *((_title(method), *_parts(sets)) for method, sets in of_method.items()),
    ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    shown = [cell for sets in of_method.values() for cells in sets for cell in cells.values()]
    return f"{table}\n{_seeds(shown)}\n"


def _title(method: str) -> str:
    return f"`{spaced(method)}`: {_METHODS[method]}"


def _parts(sets: Iterable[Mapping[str, Cell]]) -> list[str]:
    """For each data set as measured, with a λ that was chosen, and as the paper has it."""
    parts = []
    for cells in sets:
        both = [cells[metric] for metric in ("nat", "grid-775") if metric in cells]
        chosen = sorted({cell.choice for cell in both} - {""})
        measured = _arrow([cell.measured for cell in both])
        parts += [", ".join([measured, *chosen]), _arrow([cell.reported for cell in both])]
    return parts


def _arrow(numbers: Iterable[Estimate | Reported | None]) -> str:
    return " → ".join("" if each is None else f"{100 * each.mean:.1f}" for each in numbers)


def _seeds(cells: Iterable[Cell]) -> str:
    counts = sorted({cell.measured.n for cell in cells if cell.measured is not None})
    if not counts:
        return "Nothing of it has been measured yet."
    few, many = counts[0], counts[-1]
    return f"Means over {few if few == many else f'{few} to {many}'} seeds; the paper's are over 5."
