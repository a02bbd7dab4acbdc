"""Two models on the same images: against counts by hand, a bootstrap, and how often it is true."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upright.evaluation import difference

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(PAIRS)
def test_it_is_the_difference_of_accuracies_and_the_same_from_the_other_side(pairs):
    first, second = (torch.tensor(column) for column in zip(*pairs, strict=True))
    found, mirrored = difference(first, second), difference(second, first)
    assert found.share == pytest.approx(float(first.double().mean() - second.double().mean()))
    assert found.first_alone == sum(one and not other for one, other in pairs)
    assert (mirrored.first_alone, mirrored.second_alone) == (found.second_alone, found.first_alone)
    assert -1 <= found.interval.low <= found.share <= found.interval.high <= 1
    assert mirrored.interval.low == pytest.approx(-found.interval.high)


def test_an_interval_is_about_that_of_a_bootstrap():
    draw = np.random.default_rng(0)
    first = draw.random(4000) < 0.8
    second = np.where(draw.random(4000) < 0.1, draw.random(4000) < 0.6, first)
    rows = draw.integers(0, 4000, (4000, 4000))
    shares = first[rows].mean(1) - second[rows].mean(1)
    low, high = np.quantile(shares, [0.025, 0.975])
    found = difference(torch.as_tensor(first), torch.as_tensor(second)).interval
    assert found.low == pytest.approx(low, abs=0.06 * (high - low))
    assert found.high == pytest.approx(high, abs=0.06 * (high - low))


@pytest.mark.parametrize("images", [30, 300])
@pytest.mark.parametrize("alone", [(0.02, 0.02), (0.2, 0.05), (0.01, 0.15)])
def test_the_truth_lies_in_it_as_often_as_it_says(images, alone):
    draw = np.random.default_rng(1)
    counts = draw.multinomial(images, [*alone, 1 - sum(alone)], size=3000)
    inside = []
    for one, other, _ in counts.tolist():
        first = torch.arange(images) < one
        second = (torch.arange(images) >= one) & (torch.arange(images) < one + other)
        found = difference(first, second).interval
        inside.append(found.low <= alone[0] - alone[1] <= found.high)
    assert 0.94 <= np.mean(inside) <= 1


def test_it_tells_models_apart_that_their_own_intervals_do_not():
    first = torch.arange(1000) < 780
    second = torch.arange(1000) < 765
    found = difference(first, second).interval
    assert found.low > 0


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (torch.ones(3), torch.ones(3), "one bool for each image"),
        (torch.ones(0, dtype=torch.bool), torch.ones(0, dtype=torch.bool), "one bool for each"),
        (torch.ones(3) > 0, torch.ones(4) > 0, "3 images and the other about 4"),
    ],
)
def test_what_cannot_be_compared_is_told(first, second, words):
    with pytest.raises(ValueError, match=words):
        difference(first, second)
