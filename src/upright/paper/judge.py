"""How one cell is judged: what the records of its runs say, beside what the paper reports.

``Judge.cell`` puts a cell together. Whether it then agrees, is above or short is
``report.model.Cell.verdict``: how many standard errors (``report.compare.difference``) lie between
the measured mean and the printed one. A misprint is not compared with; a caveat is told beside it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache

from upright.paper.cells import by_recipe, chosen_weight, paper_method, wanted
from upright.paper.numbers import misprint_of, printed, reported
from upright.paper.paper import Layout, Paper
from upright.records import Record, Reported
from upright.report import Cell, Difference, Estimate, Spread
from upright.report.compare import (
    difference,
    estimate,
    natural_beside,
    pooled_spread,
    reduction,
    reported_reduction,
)

__all__ = ["Judge"]


class Judge:
    """Judges cells by records, which it looks through once."""

    def __init__(
        self,
        paper: Paper,
        records: Iterable[Record],
        *,
        seeds: int,
        batches: Collection[int] = (),
        options: Sequence[str] = (),
    ) -> None:
        """A cell with fewer than so many seeds has the command that makes the others.

        Args:
            paper: whose cells are judged.
            records: what was measured.
            seeds: as many as a cell is to have.
            batches: the sizes of batch that the command asks for; none for all.
            options: what else the command has, ready to be typed, part by part.
        """
        self.paper = paper
        self.seeds, self._batches, self._options = seeds, batches, options
        self._index = by_recipe(paper, records)
        # Cells ask for the same again: for their natural accuracy, and for their baseline.
        self.shown = cache(self._shown)
        self.measured = cache(self._measured)
        self.pooled = cache(self._pooled)

    def cell(self, layout: Layout, dataset: str, method: str, metric: str) -> Cell | None:
        """Give one cell of a table; None where the paper has a dash."""
        number = printed(self.paper, layout.name, dataset, method, metric)
        if number is None:
            return None
        measured = self.measured(dataset, method, metric)
        natural = self.measured(dataset, method, "nat")
        misprint = misprint_of(self.paper, layout.name, dataset, method)
        cell = Cell(
            measured=measured,
            reported=number,
            above_natural=bool(measured and natural and measured.mean > natural.mean),
            note=misprint or self.paper.caveat(self.paper.method(method), metric),
            weight=chosen_weight(self.paper, dataset, method),
            command=self._command(layout.name, dataset, method, measured),
        )
        if misprint:
            return cell
        return self._reduced(
            replace(cell, difference=self._difference(number, dataset, measured, metric)),
            *(layout.name, dataset, method, metric),
        )

    def _difference(
        self, number: Reported, dataset: str, measured: Estimate | None, metric: str
    ) -> Difference | None:
        if measured is None:
            return None
        pooled, seeds = self.pooled(dataset, metric), self.paper.seeds
        return difference(measured, number, pooled=pooled, paper_seeds=seeds)

    def _reduced(self, cell: Cell, table: str, dataset: str, method: str, metric: str) -> Cell:
        """Compare a cell with its baseline, where it has one."""
        baseline = self.paper.baseline(self.paper.method(method))
        if baseline is None:
            return cell
        after, before = cell.measured, self.measured(dataset, baseline, metric)
        return replace(
            cell,
            reduction=reduction(after.mean, before.mean) if after and before else None,
            reported_reduction=reported_reduction(
                cell.reported, self._reported(table, dataset, baseline, metric)
            ),
        )

    def _reported(self, table: str, dataset: str, method: str, metric: str) -> Reported | None:
        """As the same table prints it, or else the paper's number for it."""
        here = printed(self.paper, table, dataset, method, metric)
        return here or reported(self.paper, dataset, method, metric)

    def _measured(self, dataset: str, method: str, metric: str) -> Estimate | None:
        return self._estimate(self.shown(dataset, method), metric)

    def _estimate(self, records: Iterable[Record], metric: str) -> Estimate | None:
        """Over seeds; natural accuracy of the networks that the decisive one is of."""
        if metric == "nat":
            return natural_beside(records, self.paper.decisive)
        return estimate(records, metric.lower())

    def _shown(self, dataset: str, method: str) -> tuple[Record, ...]:
        """The records of a method; of several batch sizes those with the best accuracy."""
        recipes = wanted(self.paper, dataset, method)
        versions = [self._index[recipe] for recipe in recipes if recipe in self._index]
        return max(versions, key=self._merit, default=())

    def _merit(self, records: tuple[Record, ...]) -> tuple[float, ...]:
        found = (self._estimate(records, metric) for metric in (self.paper.decisive, "nat"))
        return tuple(-1.0 if each is None else each.mean for each in found)

    def _pooled(self, dataset: str, metric: str) -> Spread | None:
        """The spread between seeds over all runs of the paper's on a data set, shown or not.

        How far networks by other recipes lie apart, or means of answers, says nothing about them.
        """
        alike = (
            self._estimate(some, metric)
            for plan, some in self._index.items()
            if plan.main.data == dataset and paper_method(self.paper, plan) is not None
        )
        return pooled_spread(alike)

    def _command(self, table: str, dataset: str, method: str, measured: Estimate | None) -> str:
        full = measured is not None and measured.n >= self.seeds
        if full or not self.paper.command:
            return ""
        asked = ["--table", table, "--dataset", dataset, "--method", method]
        # A size that the method was never trained with would leave the command no run.
        there = {plan.main.batch for plan in wanted(self.paper, dataset, method)}
        for batch in self._batches:
            asked += ["--batch", str(batch)] if batch in there else []
        asked += ["--seeds", str(self.seeds), *self._options]
        return f"{self.paper.command} {shlex.join(asked)}"
