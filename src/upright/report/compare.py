"""Means over seeds, and how they stand beside the paper's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from upright.records import Record, Reported
from upright.report.model import Difference, Estimate, Reduction, Source, Spread, SpreadBasis

__all__ = [
    "difference",
    "estimate",
    "natural_beside",
    "pooled_spread",
    "reduction",
    "reported_reduction",
]


def estimate(records: Iterable[Record], metric: str) -> Estimate | None:
    """Average a metric over seeds, each by its newest record; None where no record has it."""
    having = [record for record in records if metric in record.measured]
    in_time = sorted(having, key=lambda each: each.finished_at)
    newest = {record.seeds: record for record in in_time}
    if not newest:
        return None
    chosen = [newest[seeds] for seeds in sorted(newest)]
    values = [record.measured[metric] for record in chosen]
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Estimate(
        mean=statistics.fmean(values),
        stderr=None if spread is None else spread / math.sqrt(len(values)),
        images=min(record.images for record in chosen),
        sources=tuple(_source(record) for record in chosen),
    )


def natural_beside(records: Iterable[Record], metric: str) -> Estimate | None:
    """Average natural accuracy over those networks of which a metric is known, where it is of any.

    A seed that was trained again, to measure something else, is another network.
    """
    kept = tuple(records)
    having = [record for record in kept if metric in record.measured]
    return estimate(having, "nat") or estimate(kept, "nat")


def pooled_spread(methods: Iterable[Estimate | None]) -> Spread | None:
    """The standard deviation between seeds of one method, from all that have several; or None.

    Methods differ in their means, so each counts by the squares around its own.
    """
    found = [each for each in methods if each is not None]
    freedom = sum(each.n - 1 for each in found)
    squares = sum((each.stderr or 0) ** 2 * each.n * (each.n - 1) for each in found)
    return Spread(deviation=math.sqrt(squares / freedom), freedom=freedom) if squares else None


def difference(
    measured: Estimate, reported: Reported, *, pooled: Spread | None = None, paper_seeds: int = 5
) -> Difference:
    """Compare a mean with the paper's, which is over ``paper_seeds`` runs.

    The standard error of the difference is that of both means together. A mean of one seed has
    none of its own; then its spread is taken to be the pooled one of our other methods or, where
    that is not known, that of the paper's runs, of five √5 times its standard error. Where the
    paper prints none, or one that is rounded to nothing, its runs are taken to spread like ours.
    With none of these, the spread is that of a fraction of so many test images.
    """
    theirs = _spread_of(reported.stderr, paper_seeds)
    basis, ours = _our_spread(measured, reported, pooled, theirs)
    variances = ours.deviation**2 / measured.n, (theirs or ours).deviation ** 2 / paper_seeds
    if theirs is None or theirs is ours:
        freedom = ours.freedom  # one estimate serves both
    else:
        parts = zip(variances, (ours.freedom, theirs.freedom), strict=True)
        freedom = sum(variances) ** 2 / sum(part**2 / its for part, its in parts)
    return Difference(
        absolute=measured.mean - reported.mean,
        stderr=math.sqrt(sum(variances)),
        freedom=freedom,
        basis=basis,
    )


def _our_spread(
    measured: Estimate, reported: Reported, pooled: Spread | None, theirs: Spread | None
) -> tuple[SpreadBasis, Spread]:
    own = _spread_of(measured.stderr, measured.n)
    if own is not None:
        return "seeds", own
    if pooled is not None:
        return "pooled", pooled
    if theirs is not None:
        return "paper", theirs
    of_images = _binomial(reported.mean, measured.images)
    return "images", Spread(deviation=of_images, freedom=math.inf)


def _spread_of(stderr: float | None, runs: int) -> Spread | None:
    """Give what a mean's standard error says; None for none, one of nothing, and that of one run,
    which is none between runs."""
    if not stderr or runs < 2:
        return None
    return Spread(deviation=stderr * math.sqrt(runs), freedom=runs - 1)


def reduction(accuracy: float, baseline: float) -> Reduction | None:
    """How much of a baseline's error is gone; None for a baseline without error."""
    if baseline == 1:
        return None
    drop = accuracy - baseline
    return Reduction(absolute=drop, relative=drop / (1 - baseline))


def reported_reduction(method: Reported | None, baseline: Reported | None) -> Reduction | None:
    """How much of a baseline's error is gone by the paper's own numbers, where it has both."""
    if method is None or baseline is None:
        return None
    return reduction(method.mean, baseline.mean)


def _binomial(fraction: float, images: int) -> float:
    # At 0 and 1 the formula gives no spread at all; half an image away it gives the least there is.
    kept = min(max(fraction, 0.5 / images), 1 - 0.5 / images)
    return math.sqrt(kept * (1 - kept) / images)


def _source(record: Record) -> Source:
    return Source(
        recipe_hash=record.recipe_hash,
        seed=record.seed,
        commit=record.commit,
        hardware=record.hardware,
        finished=record.finished,
    )
