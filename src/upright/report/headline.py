"""The accuracies that a front page shows: a few methods, every data set, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from upright.records import Reported
from upright.report.lines import spaced
from upright.report.methods import measured_methods
from upright.report.model import Cell, Estimate, Table

__all__ = ["Headline", "headline_to_markdown"]


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What a front page shows of a paper, which spells methods and data sets."""

    methods: Mapping[str, str]
    """With what each does, in a few words."""
    datasets: tuple[str, ...]
    metric: str = "grid-775"
    """Beside natural accuracy."""


def headline_to_markdown(tables: Iterable[Table], headline: Headline, *, paper_seeds: int) -> str:
    """Give one table in Markdown, of data sets that have records, and say over how many seeds.

    The paper's means are over ``paper_seeds``.
    """
    found = measured_methods(tables)
    names = [name for name in headline.datasets if name in found]
    of_method = {
        method: [found[name].get(method, {}) for name in names] for method in headline.methods
    }
    headings = [part for name in names for part in (f"{name}, %", "paper")]
    rows = [
        (f"trained by: natural → {headline.metric}", *headings),
        ("---", *("---:" for _ in headings)),
        *(
            (f"`{spaced(method)}`: {headline.methods[method]}", *_parts(sets, headline.metric))
            for method, sets in of_method.items()
        ),
    ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    shown = [cell for sets in of_method.values() for cells in sets for cell in cells.values()]
    return f"{table}\n{_seeds(shown, paper_seeds)}\n"


def _parts(sets: Iterable[Mapping[str, Cell]], metric: str) -> list[str]:
    """For each data set as measured, with a λ that was chosen, and as the paper has it."""
    parts = []
    for cells in sets:
        both = [cells[name] for name in ("nat", metric) if name in cells]
        chosen = sorted({cell.choice for cell in both} - {""})
        measured = _arrow([cell.measured for cell in both])
        parts += [", ".join([measured, *chosen]), _arrow([cell.reported for cell in both])]
    return parts


def _arrow(numbers: Iterable[Estimate | Reported | None]) -> str:
    return " → ".join("" if each is None else f"{100 * each.mean:.1f}" for each in numbers)


def _seeds(cells: Iterable[Cell], paper_seeds: int) -> str:
    counts = sorted({cell.measured.n for cell in cells if cell.measured is not None})
    if not counts:
        return "Nothing of it has been measured yet."
    few, many = counts[0], counts[-1]
    ours = few if few == many else f"{few} to {many}"
    return f"Means over {ours} seeds; the paper's are over {paper_seeds}."
