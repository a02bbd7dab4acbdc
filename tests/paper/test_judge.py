"""How a cell is judged; what tables show of it is tested with them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from made_up_records import made_up_record, paper_recipe
from upright.paper import INVARIANCE
from upright.paper.judge import Judge
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
    assert alone.pooled("cifar10", "nat") == pytest.approx(0.1 / math.sqrt(2))
    assert beside.pooled("cifar10", "nat") == alone.pooled("cifar10", "nat")


def test_runs_by_other_recipes_have_no_part_in_the_pooled_spread() -> None:
    """They say how far networks that are more often right lie apart, and not the paper's."""
    runs = [paper_recipe("cifar10", "std*", seed=seed) for seed in range(2)]
    larger = [replace(run, batch=128) for run in runs]  # which the paper has as well
    others = [replace(run, cosine=True) for run in runs]
    spread = {0: 0.5, 1: 0.6}
    paper = [made_up_record(run, {"nat": spread[run.seed]}) for run in runs]
    of_paper = [*paper, *(made_up_record(run, {"nat": spread[run.seed]}) for run in larger)]
    other = [made_up_record(run, {"nat": 0.9}) for run in others]
    for records in (paper, of_paper, [*paper, *other]):
        judge = Judge(INVARIANCE, records, seeds=5)
        assert judge.pooled("cifar10", "nat") == pytest.approx(0.1 / math.sqrt(2))
    assert Judge(INVARIANCE, other, seeds=5).pooled("cifar10", "nat") is None
