"""How a cell is judged; what tables show of it is tested with them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from made_up_records import made_up_record, paper_recipe
from upright.paper import INVARIANCE
from upright.paper.judge import Judge
from upright.records import Record
from upright.report import Estimate
from upright.train import Mean
from upright.tta import Averaging


def test_means_of_answers_have_no_part_in_the_pooled_spread() -> None:
    """They are made of runs that count already, and spread less."""
    runs = [paper_recipe("cifar10", "std*", seed=seed) for seed in range(2)]
    means = [Mean(members=(run,), over=Averaging.parse("mirror")) for run in runs]
    plain = [made_up_record(run, {"nat": 0.5 + run.seed / 10}) for run in runs]
    mirrored = [made_up_record(mean, {"nat": 0.7}) for mean in means]
    alone, beside = (
        Judge(INVARIANCE, records, seeds=5) for records in (plain, [*plain, *mirrored])
    )
    spread = alone.pooled("cifar10", "nat")
    assert spread is not None
    assert (spread.deviation, spread.freedom) == (pytest.approx(0.1 / math.sqrt(2)), 1)
    assert beside.pooled("cifar10", "nat") == alone.pooled("cifar10", "nat")


def test_natural_accuracy_is_of_the_networks_whose_grid_accuracy_is_shown() -> None:
    """A seed that was trained again for a finer grid is another network."""
    runs = [paper_recipe("cifar10", "std*", seed=seed) for seed in range(2)]
    first = [made_up_record(run, {"nat": 0.8, "grid-775": 0.5}) for run in runs]
    again = made_up_record(runs[0], {"nat": 0.6, "grid-7500": 0.4})
    later = replace(again, finished="2100-01-01T00:00:00+00:00")

    def measured(metric: str, *records: Record) -> Estimate | None:
        return Judge(INVARIANCE, records, seeds=5).measured("cifar10", "std*", metric)

    both = measured("nat", *first, later)
    assert both is not None
    assert (both.mean, both.n) == (pytest.approx(0.8), 2)
    finer, alone = measured("grid-7500", *first, later), measured("nat", later)
    assert finer is not None
    assert alone is not None
    assert (finer.mean, alone.mean) == (0.4, 0.6)


def test_runs_by_other_recipes_have_no_part_in_the_pooled_spread() -> None:
    """They do not say how far the paper's lie apart; a second size of batch is the paper's."""
    runs = [paper_recipe("cifar10", "std*", seed=seed) for seed in range(2)]

    def recorded(apart: float, **changes: object) -> list[Record]:
        changed = [replace(run, **changes) for run in runs]
        return [made_up_record(run, {"nat": 0.5 + apart * run.seed}) for run in changed]

    def pooled(*records: list[Record]) -> float | None:
        every = itertools.chain.from_iterable(records)
        spread = Judge(INVARIANCE, every, seeds=5).pooled("cifar10", "nat")
        return None if spread is None else spread.deviation

    paper, larger, other = recorded(0.1), recorded(0.3, batch=128), recorded(0.2, cosine=True)
    assert pooled(paper) == pooled(paper, other) == pytest.approx(0.1 / math.sqrt(2))
    assert pooled(paper, larger) == pytest.approx(math.sqrt((0.1**2 + 0.3**2) / 4))
    assert pooled(other) is None
