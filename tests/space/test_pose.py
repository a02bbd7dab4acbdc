"""Poses: the sign conventions, and composition and inverse against 3 x 3 matrices."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geometry_reference import Array, matrix
from upright import Pose
from upright.families import RIGID, chain_of, cos_sin_degrees

shifts = st.floats(-20, 20)
angles = st.floats(-400, 400)
triples = st.tuples(shifts, shifts, angles)


def pose_of(triple: tuple[float, float, float]) -> Pose:
    return Pose.of(*triple, dtype=torch.float64)


def matrix_of(pose: Pose) -> Array:
    return matrix(pose.dx.item(), pose.dy.item(), pose.angle.item())


def assert_same(pose: Pose, dx: float, dy: float, angle: float) -> None:
    assert pose.values.tolist() == [pytest.approx([dx, dy, angle], abs=1e-12)]


def test_positive_angle_turns_counter_clockwise_as_displayed() -> None:
    right_of_centre = Pose.of(dx=1.0)
    turned = right_of_centre.compose(then=Pose.of(angle=90.0))
    assert_same(turned, 0, -1, 90)  # above the centre: y points down


def test_rotation_comes_before_translation() -> None:
    right_of_centre = Pose.of(dx=1.0)
    moved = right_of_centre.compose(then=Pose.of(dx=5.0, angle=90.0))
    assert_same(moved, 5, -1, 90)


def test_compose_applies_this_pose_first_and_then_the_other() -> None:
    shift, turn = Pose.of(dx=2.0), Pose.of(angle=90.0)
    assert_same(shift.compose(then=turn), 0, -2, 90)
    assert_same(turn.compose(then=shift), 2, 0, 90)


@given(triples, triples)
def test_compose_is_the_product_of_matrices(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> None:
    composed = matrix_of(pose_of(first).compose(then=pose_of(second)))
    np.testing.assert_allclose(composed, matrix(*second) @ matrix(*first), atol=1e-11)


@given(triples)
def test_inverse_is_the_inverse_matrix(triple: tuple[float, float, float]) -> None:
    inverse = matrix_of(pose_of(triple).inverse())
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix(*triple)), atol=1e-11)


@given(triples)
def test_a_pose_and_its_inverse_cancel_in_either_order(
    triple: tuple[float, float, float],
) -> None:
    pose = pose_of(triple)
    assert_same(pose.compose(then=pose.inverse()), 0, 0, 0)
    assert_same(pose.inverse().compose(then=pose), 0, 0, 0)


@given(triples, triples, triples)
def test_compose_is_associative(
    a: tuple[float, float, float], b: tuple[float, float, float], c: tuple[float, float, float]
) -> None:
    one, two, three = pose_of(a), pose_of(b), pose_of(c)
    left = one.compose(then=two).compose(then=three).values
    right = one.compose(then=two.compose(then=three)).values
    torch.testing.assert_close(left, right, rtol=0, atol=1e-11)


def test_compose_broadcasts_over_batches() -> None:
    members = Pose.of(dx=[0.0, 1.0, 2.0])
    between = members.inverse()[:, None].compose(then=members[None, :])
    assert between.dx.tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turns", range(-9, 10))
def test_cosine_and_sine_are_exact_at_multiples_of_90_degrees(
    turns: int, dtype: torch.dtype
) -> None:
    cos, sin = cos_sin_degrees(torch.tensor(90.0 * turns, dtype=dtype))
    assert (cos.item(), sin.item()) == [(1, 0), (0, 1), (-1, 0), (0, -1)][turns % 4]


@given(angles)
def test_cosine_and_sine_agree_with_the_standard_library(angle: float) -> None:
    cos, sin = cos_sin_degrees(torch.tensor(angle, dtype=torch.float64))
    assert cos.item() == pytest.approx(math.cos(math.radians(angle)), abs=2e-15)
    assert sin.item() == pytest.approx(math.sin(math.radians(angle)), abs=2e-15)


def test_cosine_and_sine_have_the_right_gradient_in_every_quarter() -> None:
    angle = torch.linspace(-355, 355, 24, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(cos_sin_degrees, angle)


def test_of_broadcasts_numbers_sequences_and_tensors() -> None:
    pose = Pose.of(1, [1, 2, 3], torch.zeros(2, 1))
    assert pose.shape == (2, 3)
    assert pose.dx.tolist() == [[1, 1, 1]] * 2
    assert pose.dy.tolist() == [[1, 2, 3]] * 2


def test_of_is_float_for_whole_numbers_and_keeps_the_widest_float() -> None:
    assert Pose.of(1, 2, 3).angle.dtype == torch.float32
    assert Pose.of(torch.zeros(2, dtype=torch.float64)).dy.dtype == torch.float64
    assert Pose.of(1, dtype=torch.float64).dx.dtype == torch.float64


def test_of_keeps_every_digit_of_a_number() -> None:
    assert Pose.of(0.1, dtype=torch.float64).dx.item() == 0.1
    assert Pose.of(torch.zeros(1, dtype=torch.float64), 0.1).dy.item() == 0.1


def test_columns_are_dx_dy_and_angle_in_this_order() -> None:
    pose = Pose.of(1.0, [2.0, 3.0], 4.0)
    assert pose.values.tolist() == [[1, 2, 4], [1, 3, 4]]
    assert [pose.dx.tolist(), pose.dy.tolist(), pose.angle.tolist()] == [[1, 1], [2, 3], [4, 4]]


def test_columns_are_views_of_the_one_tensor() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    pose = Pose(values)
    assert pose.values is values
    assert pose[1:].values.tolist() == [[4, 5, 6]]
    assert [part.values.tolist() for part in pose.split(1)] == [[[1, 2, 3]], [[4, 5, 6]]]
    assert pose.to(dtype=torch.float64).values.dtype == torch.float64
    (gradient,) = torch.autograd.grad((pose.dx + pose.values[:, 2]).sum(), values)
    assert gradient.tolist() == [[1, 0, 1], [1, 0, 1]]


def test_a_column_that_no_family_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(AttributeError, match="no 'zoom'; its columns are dx, dy, angle"):
        _ = Pose.of(1.0).zoom
    with pytest.raises(ValueError, match="no axis called dz; it has dx, dy, angle"):
        Pose.made(RIGID, dz=1)


def test_indices_are_of_poses_and_never_of_columns() -> None:
    pose = Pose(torch.arange(24.0).view(2, 4, 3))
    assert pose[..., 1].values.tolist() == pose.values[:, 1].tolist()
    assert pose[1, 2].values.tolist() == pose.values[1, 2].tolist()
    assert pose[:, None].shape == (2, 1, 4)
    chosen = torch.tensor([True, False])
    assert pose[chosen].values.equal(pose.values[:1])


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_copies_and_pickles_are_poses_too(again: Callable[[Pose], Pose]) -> None:
    pose = again(Pose.of(1.0, [2.0, 3.0], 4.0))
    assert pose.values.tolist() == [[1, 2, 4], [1, 3, 4]]
    assert pose.chain == RIGID


def test_cat_and_indexing_undo_each_other() -> None:
    pose = Pose.of(torch.arange(5.0), 1.0, torch.arange(5.0) * 10)
    joined = Pose.cat([pose[:2], pose[2:]])
    assert len(joined) == 5
    assert torch.equal(joined.values, pose.values)
    wide = Pose.cat([pose[None], pose[None]], dim=1)
    assert wide.shape == (1, 10)


def test_zeros_moves_nothing() -> None:
    assert torch.equal(Pose.zeros(2, 3).values, torch.zeros(2, 3, 3))


def test_to_changes_the_dtype_of_every_part() -> None:
    pose = Pose.zeros(2).to(dtype=torch.float64)
    assert {pose.dx.dtype, pose.dy.dtype, pose.angle.dtype} == {torch.float64}
    assert pose.device == torch.device("cpu")


def test_poses_are_in_pixels_whatever_the_limits_are_in() -> None:
    pose = Pose.made(chain_of("shift(10%)"), dx=1.5)
    assert repr(pose) == "Pose(dx=[1.5] px, dy=[0.0] px)"
    assert pose[0].in_words() == "dx 1.5 px, dy 0 px"


def test_repr_names_the_units_and_cuts_long_batches() -> None:
    assert repr(Pose.of(1.5, angle=[-30, 30])) == (
        "Pose(dx=[1.5, 1.5] px, dy=[0.0, 0.0] px, angle=[-30.0, 30.0] degrees)"
    )
    assert "0.0, ...] px" in repr(Pose.zeros(7))


@pytest.mark.parametrize("shape", [(), (2,), (3, 4)])
def test_tensors_of_other_than_a_column_for_each_axis_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"have 3 columns \(dx, dy, angle\), but .* the shape \("):
        Pose(torch.zeros(shape))
