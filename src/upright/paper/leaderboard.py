"""The most robust networks that were measured on a paper's data sets, beside what it reports.

A row is a network, a method and a recipe, over all its seeds; each seed counts once, by its newest
record. Only records of whole test sets count that were asked the paper's question, none of oracles,
none of weights that were rounded, none of runs on a part of the training images, and none of a
LocNet whose attacks have another fill than those of all others. What is shown of a data set are
the best by the paper's decisive metric, and the best of every network. Reported numbers are the
best of every network, apart where one was measured otherwise than it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from statistics import fmean
from typing import TypeVar

from upright.data.known import IMAGE_SHAPE, KNOWN
from upright.models.size import NetworkSize, network_size
from upright.paper.cells import by_recipe
from upright.paper.differences import recipe_in_words
from upright.paper.numbers import paper_rows, reported
from upright.paper.paper import Paper
from upright.records import Record
from upright.report.compare import estimate
from upright.report.model import Leaderboard, Standing, TrainingTime
from upright.train import Mean, Plan

__all__ = ["FINER", "leaderboard", "leaderboards", "measured_rows", "reported_rows"]

FINER = "refine-1000"
"""A search of the continuous space, which is shown where a record has it."""


def leaderboards(paper: Paper, records: Iterable[Record]) -> tuple[Leaderboard, ...]:
    """Give the boards of those data sets of a paper of which records have a row."""
    every = tuple(records)
    boards = (leaderboard(paper, dataset, every) for dataset in paper.datasets)
    return tuple(board for board in boards if board.measured)


def leaderboard(
    paper: Paper, dataset: str, records: Iterable[Record], *, rows: int = 10
) -> Leaderboard:
    """Show the best so many rows and the best of every network, with what is reported."""
    found = measured_rows(paper, dataset, records)
    shown = found[:rows]
    shown += [row for row in _first_of_each(found, lambda row: row.networks) if row not in shown]
    return Leaderboard(
        name=dataset,
        title=paper.datasets[dataset],
        metric=paper.decisive,
        finer=FINER,
        rows=tuple(_best_first([*shown, *reported_rows(paper, dataset)])),
        measured=len(found),
    )


def measured_rows(paper: Paper, dataset: str, records: Iterable[Record]) -> list[Standing]:
    """Every network that was measured on a data set, the best first."""
    its = (each for each in records if each.dataset == dataset and not each.is_oracle)
    found = by_recipe(paper, (each for each in its if paper.decisive in each.measured))
    return _best_first(
        _measured(paper, plan, some)
        for plan, some in found.items()
        if _on_all_images(plan) and plan.locnet_fill in (None, paper.question.fill)
    )


def _on_all_images(plan: Plan) -> bool:
    return not any(run.held_out or run.train_images is not None for run in plan.runs)


def _measured(paper: Paper, plan: Plan, records: Sequence[Record]) -> Standing:
    score = estimate(records, paper.decisive)
    assert score is not None  # by what is let onto the board
    size = _size(plan)
    return Standing(
        networks=_networks(plan),
        method=plan.method,
        recipe=recipe_in_words(paper, plan),
        natural=estimate(records, "nat"),
        attacked=score,
        finer=estimate(records, FINER),
        seeds=score.n,
        parameters=None if size is None else size.parameters,
        operations=None if size is None else size.operations,
        training=_training(records),
    )


def _networks(plan: Plan) -> tuple[str, ...]:
    """By name; of members of a mean that are alike, how many."""
    if not isinstance(plan, Mean):
        return tuple(run.model for run in plan.runs)
    counted = [(names, len([*same])) for names, same in groupby(map(_networks, plan.members))]
    return tuple(
        name if count == 1 else f"{count} x {name}" for names, count in counted for name in names
    )


def _size(plan: Plan) -> NetworkSize | None:
    """Of all its networks, as often as an answer asks them; None where one cannot be built here.

    It may be the user's own code, which only who trains it runs, or of a library or a plug-in that
    is not there.
    """
    known = KNOWN.get(plan.main.data)
    if known is None:
        return None
    try:
        sizes = [
            network_size(run.model, classes=len(run.outputs(known.classes)), shape=IMAGE_SHAPE)
            for run in plan.runs
        ]
    except Exception:  # whatever it is, it is a column of one row
        return None
    return NetworkSize(
        sum(each.parameters for each in sizes),
        plan.answers * sum(each.operations for each in sizes),
    )


def _training(records: Sequence[Record]) -> TrainingTime:
    """Of the runs that trained alone; without any, of all."""
    its = [each for each in records if each.beside == 1] or records
    counts = {each.beside for each in its}
    return TrainingTime(
        seconds=fmean(each.train_seconds or 0.0 for each in its),
        beside=tuple(sorted(count for count in counts if count)) if None not in counts else (),
        hardware=", ".join(dict.fromkeys(each.trained_on for each in its)),
    )


def reported_rows(paper: Paper, dataset: str) -> list[Standing]:
    """What a paper reports for a data set: of every network the best, the best first.

    What was measured otherwise than it says is apart. Oracles and misprints are left out.
    """
    asked = (paper.datasets[dataset], paper.decisive)
    cells = [row for row in paper_rows(paper) if (row.dataset, row.metric) == asked]
    names = dict.fromkeys(row.method for row in cells if not paper.method(row.method).oracle)
    rows = [row for name in names if (row := _reported(paper, dataset, name)) is not None]
    return _first_of_each(_best_first(rows), lambda row: (row.networks, row.caveat))


def _reported(paper: Paper, dataset: str, name: str) -> Standing | None:
    """None where the paper has a misprint alone."""
    method, score = paper.method(name), reported(paper, dataset, name, paper.decisive)
    if score is None:
        return None
    return Standing(
        networks=(method.network or method.model,),
        method=name,
        natural=reported(paper, dataset, name, "nat"),
        attacked=score,
        seeds=paper.seeds,
        source=paper.cited_as,
        caveat=paper.caveat(method, paper.decisive),
    )


def _best_first(rows: Iterable[Standing]) -> list[Standing]:
    return sorted(rows, key=lambda row: row.attacked.mean, reverse=True)


_Kind = TypeVar("_Kind")


def _first_of_each(rows: Iterable[Standing], kind: Callable[[Standing], _Kind]) -> list[Standing]:
    first: dict[_Kind, Standing] = {}
    for row in rows:
        first.setdefault(kind(row), row)
    return list(first.values())
