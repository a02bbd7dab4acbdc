"""Penalties against scipy, and the properties that the theory asks of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy
from torch import Tensor

from upright.penalties import KL, L2, Penalty, kl_divergence, squared_distance
from upright.testing import check_penalty

PENALTIES: list[Penalty] = [L2(), L2(1.5), KL(), KL("transformed")]
every_penalty = pytest.mark.parametrize("penalty", PENALTIES, ids=str)

logits = st.lists(st.floats(-20, 20), min_size=4, max_size=4)


def rows(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def as_tensor(values: list[float]) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


@settings(deadline=None)
@given(logits, logits)
def test_kl_is_the_relative_entropy_of_the_softmaxes(one: list[float], other: list[float]) -> None:
    expected = entropy(softmax(one), softmax(other))
    value = kl_divergence(as_tensor(one), as_tensor(other))
    np.testing.assert_allclose(value, [expected], rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(logits, logits, st.floats(0, 10))
def test_l2_is_the_scaled_square_of_the_norm(
    one: list[float], other: list[float], scale: float
) -> None:
    expected = scale * np.linalg.norm(np.subtract(one, other)) ** 2
    value = squared_distance(as_tensor(one), as_tensor(other), scale=scale)
    np.testing.assert_allclose(value, [expected], rtol=1e-12, atol=1e-12)


def test_by_default_l2_is_divided_by_four_and_kl_starts_at_the_original() -> None:
    natural, transformed = rows(5, 4), rows(5, 4, seed=1)
    squares = (natural - transformed).square().sum(1)
    torch.testing.assert_close(L2()(natural, transformed), squares / 4)
    torch.testing.assert_close(squared_distance(natural, transformed), squares / 4)
    p, q = softmax(natural, axis=1), softmax(transformed, axis=1)
    np.testing.assert_allclose(KL()(natural, transformed), entropy(p, q, axis=1))


def test_the_other_direction_swaps_the_arguments() -> None:
    natural, transformed = rows(5, 4), rows(5, 4, seed=1)
    there, back = KL("natural"), KL("transformed")
    assert torch.equal(there(natural, transformed), back(transformed, natural))
    assert not torch.allclose(there(natural, transformed), back(natural, transformed))


def test_a_direction_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="neither 'natural' nor 'transformed'"):
        KL("backward")  # type: ignore[arg-type]


@every_penalty
def test_keeps_the_rules_of_penalties(penalty: Penalty) -> None:
    check_penalty(penalty)


@every_penalty
@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=4, max_size=4), st.integers(0, 3), st.integers(1, 5))
def test_zero_if_equal_and_positive_if_one_logit_differs(
    penalty: Penalty, values: list[int], place: int, change: int
) -> None:
    changed = list(values)
    changed[place] += change
    same = penalty(as_tensor(list(values)), as_tensor(list(values)))
    different = penalty(as_tensor(list(values)), as_tensor(list(changed)))
    assert same.item() == 0
    assert different.item() > 1e-8


@pytest.mark.parametrize("penalty", [KL(), KL("transformed")], ids=str)
def test_kl_ignores_what_is_added_to_all_logits_of_an_image(penalty: Penalty) -> None:
    natural, transformed = rows(5, 4), rows(5, 4, seed=1)
    shifted = penalty(natural + rows(5, 1, seed=2), transformed + rows(5, 1, seed=3))
    torch.testing.assert_close(shifted, penalty(natural, transformed))
    torch.testing.assert_close(
        penalty(natural, natural + 3), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-14
    )


def test_l2_ignores_only_what_is_added_to_both_sides() -> None:
    natural, transformed, both = rows(5, 4), rows(5, 4, seed=1), rows(5, 4, seed=2)
    torch.testing.assert_close(L2()(natural + both, transformed + both), L2()(natural, transformed))
    assert (L2()(natural, natural + 3) > 0).all()


@every_penalty
def test_gradients_flow_through_both_sides(penalty: Penalty) -> None:
    natural, transformed = rows(3, 4).requires_grad_(), rows(3, 4, seed=1).requires_grad_()
    total = penalty(natural, transformed).sum()
    for gradient in torch.autograd.grad(total, (natural, transformed)):
        assert (gradient.abs().sum(1) > 0).all()


@pytest.mark.parametrize("function", [kl_divergence, KL("transformed")])
def test_kl_of_certain_predictions_is_finite_with_finite_gradients(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    sure = torch.tensor([[1e4, 0.0, -1e4]]).requires_grad_()
    of_another = torch.tensor([[-1e4, 0.0, 1e4]]).requires_grad_()
    value = function(sure, of_another)
    torch.testing.assert_close(value, torch.tensor([2e4]))
    for gradient in torch.autograd.grad(value.sum(), (sure, of_another)):
        assert gradient.isfinite().all()
