"""A paper: what it reports, which runs fill which of its cells, and how a cell is judged.

Why does a cell say what it says? Look, in this order:

1. ``cells``: which runs fill it (``wanted``), and which records are of them (``recipe_of``).
2. ``judge``: what is shown of those records beside the paper; a chosen λ, a misprint and a caveat
   are told there. The rule itself is the report's, which draws no other tables by another one:
   ``report.compare.difference`` has the standard errors, ``report.model.Cell.verdict`` the word.
3. ``numbers``: which of those that the paper reports counts; ``invariance.csv`` has them all.
4. ``invariance``: what this paper is, as one value; another is one more file (docs/add/paper.md).
5. ``weights``: what was measured with which λ, and the rule by which one is chosen.
6. ``needs``, ``missing``, ``todo``, ``cost``, ``order``: what is to be run for it, how long that
   takes, and what of it comes first.

``leaderboard`` has what was measured under other recipes, too, the most robust first;
``differences`` says in words in what a recipe is not the paper's.

The functions here speak of ``INVARIANCE`` unless they are given another paper.
"""

from upright.paper.cells import paper_method as _paper_method
from upright.paper.cells import wanted as _wanted
from upright.paper.cells import with_reported as _with_reported
from upright.paper.invariance import INVARIANCE
from upright.paper.numbers import PrintedNumber
from upright.paper.numbers import all_reported as _all_reported
from upright.paper.numbers import paper_rows as _paper_rows
from upright.paper.numbers import reported as _reported
from upright.paper.paper import Figure, Layout, Method, Paper
from upright.records import Record, Reported
from upright.train import Plan

__all__ = [
    "INVARIANCE",
    "Figure",
    "Layout",
    "Method",
    "Paper",
    "PrintedNumber",
    "all_reported",
    "paper_method",
    "paper_rows",
    "reported",
    "wanted",
    "with_reported",
]


def paper_rows(*, paper: Paper = INVARIANCE) -> tuple[PrintedNumber, ...]:
    """All numbers of a paper, in its order, misprints included."""
    return _paper_rows(paper)


def reported(
    dataset: str, method: str, metric: str, *, paper: Paper = INVARIANCE
) -> Reported | None:
    """What the paper reports, or None where it reports nothing.

    Args:
        dataset: ``cifar10`` or ``CIFAR-10``, and so on.
        method: in the paper's notation, such as ``KL(rob, Wo-10)``, with spaces or without.
        metric: ``nat``, or the name of an attack, such as ``grid-775`` or ``s-pgd``.
        paper: whose number is asked for.

    >>> reported("cifar10", "KL(rob, Wo-10)", "grid-775").mean
    0.7747
    """
    return _reported(paper, dataset, method, metric)


def all_reported(
    dataset: str, method: str, metric: str, *, paper: Paper = INVARIANCE
) -> tuple[Reported, ...]:
    """Every table's number for the same cell, the one to compare with first; no misprints."""
    return _all_reported(paper, dataset, method, metric)


def wanted(dataset: str, method: str, *, paper: Paper = INVARIANCE) -> tuple[Plan, ...]:
    """Say what fills a method's cells on a data set; the better of what is given is reported.

    Seed 0, float32. The method is as the paper spells it.
    """
    return _wanted(paper, dataset, method)


def paper_method(recipe: Plan, *, paper: Paper = INVARIANCE) -> str | None:
    """The paper's name for a recipe, seed and precision aside; None where it has no such run."""
    return _paper_method(paper, recipe)


def with_reported(
    record: Record, *, also_called: str | None = None, paper: Paper = INVARIANCE
) -> Record:
    """Give a record with what the paper has for its cells, where it fills any.

    ``also_called`` is another name of its data: of a file, under which a run knows a known set.
    """
    return _with_reported(paper, record, also_called=also_called)
