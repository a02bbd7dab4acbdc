"""Where a job on many ranks spends its time: a small simulation, for ``scaling.py``.

All times are in seconds. Nothing here is measured: each function says what its model leaves out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = [
    "Link",
    "Sharing",
    "Step",
    "StepTime",
    "best_interval",
    "chunk_passes",
    "makespan",
    "run_seconds",
    "step_time",
]

Sharing = Literal["turns", "blocks", "first free"]


@dataclass(frozen=True)
class Link:
    """What connects two ranks; all links are alike and none is shared."""

    bytes_per_second: float = math.inf
    latency: float = 0.0

    def all_reduce(self, size: float, ranks: int) -> float:
        """Sum ``size`` bytes over all ranks: around a ring, or up and down a tree where faster.

        The ring sends a part of 1/ranks to the neighbour, 2 (ranks - 1) times; the tree sends all
        of it, once for each level up and once down.
        """
        ring = 2 * (ranks - 1) * (self.latency + size / ranks / self.bytes_per_second)
        levels = math.ceil(math.log2(ranks))
        return min(ring, 2 * levels * (self.latency + size / self.bytes_per_second))


@dataclass(frozen=True)
class Step:
    """A training step of one rank."""

    compute: float
    backward: float
    """The part of ``compute`` in which gradients are sent as they become ready."""
    gradient_bytes: float
    norms: int = 0
    """Batch norms that are synchronised: each waits for all ranks, forwards and backwards."""
    norm_bytes: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """What a step takes on many ranks, by its causes."""

    compute: float
    stragglers: float
    gradients: float
    """What the backward pass does not hide."""
    norms: float

    @property
    def total(self) -> float:
        return self.compute + self.stragglers + self.gradients + self.norms


def step_time(
    step: Step, link: Link, ranks: int, *, jitter: float, rng: np.random.Generator
) -> StepTime:
    """Take the mean of many steps in which a rank's compute time varies by ``jitter`` (relative).

    The times are log-normal and independent from step to step and rank to rank; all wait for the
    slowest once a step, also where norms let them wait more often.
    """
    samples = max(64, 200_000 // ranks)
    factors = rng.lognormal(-(jitter**2) / 2, jitter, (samples, ranks))
    slowest = float(factors.max(1).mean()) / float(factors.mean())
    return StepTime(
        compute=step.compute,
        stragglers=step.compute * (slowest - 1),
        gradients=max(0.0, link.all_reduce(step.gradient_bytes, ranks) - step.backward),
        norms=2 * step.norms * link.all_reduce(step.norm_bytes, ranks),
    )


def run_seconds(
    work: float,
    *,
    interval: float,
    write: float,
    restart: float,
    between_failures: float,
    rng: np.random.Generator,
) -> float:
    """Run ``work`` seconds of steps, with a checkpoint after each ``interval`` of them.

    Failures of any rank come at random, ``between_failures`` apart in the mean; each loses what was
    done since the last checkpoint and takes ``restart``, in which nothing fails.
    """
    clock = done = 0.0
    while done < work:
        piece = min(interval, work - done)
        until_failure = rng.exponential(between_failures)
        if until_failure < piece + write:
            clock += until_failure + restart
        else:
            clock += piece + write
            done += piece
    return clock


def best_interval(write: float, between_failures: float) -> float:
    """Give the interval between checkpoints that loses least, to first order (Young 1974)."""
    return math.sqrt(2 * write * between_failures)


def makespan(works: Sequence[float], speeds: Sequence[float], sharing: Sharing) -> float:
    """Share chunks of work among ranks; give the time until the last rank is done.

    ``turns``: chunk i to rank i modulo ranks; ``blocks``: consecutive chunks to each rank; ``first
    free``: each chunk, in order, to the rank that is free first.
    """
    ranks = len(speeds)
    if sharing == "first free":
        free = [(0.0, rank) for rank in range(ranks)]
        for work in works:
            clock, rank = heapq.heappop(free)
            heapq.heappush(free, (clock + work / speeds[rank], rank))
        return max(clock for clock, _ in free)
    loads = [0.0] * ranks
    for number, work in enumerate(works):
        rank = number % ranks if sharing == "turns" else number * ranks // len(works)
        loads[rank] += work
    return max(load / speed for load, speed in zip(loads, speeds, strict=True))


def chunk_passes(
    images: int,
    chunk: int,
    poses: int,
    *,
    robust: float,
    tries: float,
    classes: int,
    rng: np.random.Generator,
) -> list[float]:
    """Draw the passes of each chunk when an image that is fooled is not asked again.

    Images are sorted by class, as in a folder. Of a class a fraction around ``robust`` is not
    fooled by any of the poses (uniform over classes between 0 and twice that, or as far as 1
    allows); a fooled image takes ``tries`` passes in the mean.
    """
    reach = min(robust, 1 - robust)
    rates = rng.uniform(robust - reach, robust + reach, classes)
    survives = rng.random(images) < rates[np.arange(images) * classes // images]
    fooled_after = np.minimum(rng.geometric(1 / tries, images), poses)
    passes = 1 + np.where(survives, poses, fooled_after)
    return [float(passes[start : start + chunk].sum()) for start in range(0, images, chunk)]
