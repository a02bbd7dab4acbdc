"""What holds for every evaluation, whatever the model, the images and the limits."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rigid_spaces import rigid, rigid_box
from upright import (
    Attack,
    Evaluation,
    GridSearch,
    RandomSearch,
    RefiningClimb,
    RefiningSearch,
    Space,
    SpatialPGD,
)
from upright import evaluate as evaluate_any

few = settings(max_examples=20)

# The model's answers depend on its batch in the last digits only, and float64 has digits to spare.
same_loss = partial(torch.testing.assert_close, rtol=0, atol=1e-9)


@dataclass(frozen=True)
class Case:
    """A random network of two layers, random images, and labels that it gets right for the most."""

    seed: int
    count: int
    space: Space

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        images = torch.rand(self.count, 1, 5, 6, generator=generator, dtype=torch.float64)
        # A third of the labels are drawn, so that some images are misclassified as they are.
        drawn = torch.randint(3, (self.count,), generator=generator)
        keep = torch.rand(self.count, generator=generator) < 0.67
        return images, torch.where(keep, self.model(images).argmax(1), drawn)

    def model(self, images: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1)
        first = torch.randn(30, 8, generator=generator, dtype=torch.float64)
        second = torch.randn(8, 3, generator=generator, dtype=torch.float64)
        return torch.tanh(images.flatten(1) @ first) @ second

    def evaluate(self, *attacks: Attack, data: Any = None, **options: Any) -> Evaluation:
        data = self.data if data is None else data
        return evaluate_any(self.model, data, attacks=attacks, space=self.space, **options)


limits = st.floats(0.1, 2)
spaces = st.builds(rigid_box, max_dx=limits, max_dy=limits, max_angle=st.floats(1, 60))
cases = st.builds(Case, seed=st.integers(0, 10_000), count=st.integers(1, 24), space=spaces)
many = st.builds(Case, seed=st.integers(0, 10_000), count=st.just(1030), space=spaces)
counts = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
grids = st.builds(GridSearch, counts)
randoms = st.builds(RandomSearch, st.integers(1, 5))
climbs = st.builds(SpatialPGD, st.integers(0, 2), restarts=st.integers(1, 2))
refinements = st.builds(RefiningSearch, st.integers(1, 40), st.booleans())
ending = st.builds(RefiningClimb, st.integers(7, 40), st.booleans())
attacks = st.one_of(grids, randoms, climbs, refinements, ending)
batch_sizes = st.integers(1, 70)


def only_result(evaluation: Evaluation) -> Any:
    (result,) = evaluation.attacks.values()
    return result


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert torch.equal(one.natural_correct, other.natural_correct)
    same_loss(one.natural_loss, other.natural_loss)
    result, again = only_result(one), only_result(other)
    assert torch.equal(result.correct, again.correct)
    assert torch.equal(result.worst_pose.values, again.worst_pose.values)
    same_loss(result.worst_loss, again.worst_loss)
    assert torch.equal(result.worst_class, again.worst_class)
    if result.fooled is not None:
        assert torch.equal(result.fooled.bits, again.fooled.bits)


@few
@given(cases, attacks)
def test_zero_limits_give_the_natural_accuracy(case: Case, attack: Attack) -> None:
    still = Case(case.seed, case.count, rigid(0, 0))
    evaluation = still.evaluate(attack)
    assert torch.equal(only_result(evaluation).correct, evaluation.natural_correct)
    same_loss(only_result(evaluation).worst_loss, evaluation.natural_loss)


@few
@given(cases, counts, st.integers(2, 3))
def test_a_finer_nested_grid_never_raises_accuracy(
    case: Case, coarse: tuple[int, int, int], factor: int
) -> None:
    # A single value is 0, which every odd count holds.
    dx, dy, angle = (factor * (count - 1) + 1 if count > 1 else 3 for count in coarse)
    before = only_result(case.evaluate(GridSearch(coarse)))
    after = only_result(case.evaluate(GridSearch((dx, dy, angle))))
    assert (after.correct <= before.correct).all()
    same_rank = after.correct == before.correct
    assert (after.worst_loss >= before.worst_loss - 1e-9)[same_rank].all()


@few
@given(cases, st.tuples(*[st.sampled_from([1, 3, 5])] * 3))
def test_a_grid_with_the_zero_pose_never_beats_the_natural_accuracy(
    case: Case, odd: tuple[int, int, int]
) -> None:
    evaluation = case.evaluate(GridSearch(odd))
    assert (only_result(evaluation).correct <= evaluation.natural_correct).all()


@few
@given(cases, attacks, st.booleans(), st.integers(1, 2))
def test_with_the_identity_no_attack_beats_the_natural_accuracy(
    case: Case, attack: Attack, only_accuracy: bool, top: int
) -> None:
    evaluation = case.evaluate(attack, include_identity=True, only_accuracy=only_accuracy, top=top)
    assert (only_result(evaluation).correct <= evaluation.natural_correct).all()
    assert not any("above natural" in note for note in evaluation.notes)


@few
@given(cases, attacks)
def test_more_classes_to_be_among_never_lower_accuracy(case: Case, attack: Attack) -> None:
    first, second = case.evaluate(attack), case.evaluate(attack, top=2)
    assert (first.natural_correct <= second.natural_correct).all()
    # The others follow another rank elsewhere.
    if isinstance(attack, GridSearch | RandomSearch):
        assert (only_result(first).correct <= only_result(second).correct).all()


@few
@given(cases, attacks)
def test_the_class_at_the_worst_pose_is_the_label_where_the_answer_is_right(
    case: Case, attack: Attack
) -> None:
    evaluation = case.evaluate(attack)
    found = only_result(evaluation)
    assert torch.equal(found.worst_class == evaluation.labels, found.correct)


@few
@given(cases, attacks, batch_sizes, batch_sizes)
def test_the_result_does_not_depend_on_the_batch_size(
    case: Case, attack: Attack, one: int, other: int
) -> None:
    assert_same(case.evaluate(attack, batch_size=one), case.evaluate(attack, batch_size=other))


@few
@given(cases, attacks, st.lists(st.integers(0, 24), max_size=3))
def test_the_result_does_not_depend_on_how_the_data_come_in_batches(
    case: Case, attack: Attack, cuts: list[int]
) -> None:
    images, labels = case.data
    ends = sorted(min(cut, case.count) for cut in cuts)
    batches = list(zip(images.tensor_split(ends), labels.tensor_split(ends), strict=True))
    assert_same(case.evaluate(attack, data=batches), case.evaluate(attack))


@few
@given(cases, st.one_of(grids, st.just(RefiningSearch(30))), st.randoms(use_true_random=False))
def test_the_result_does_not_depend_on_the_order_of_images(
    case: Case, attack: Attack, random: Any
) -> None:
    order = list(range(case.count))
    random.shuffle(order)
    images, labels = case.data
    straight = only_result(case.evaluate(attack))
    shuffled = only_result(case.evaluate(attack, data=(images[order], labels[order])))
    assert torch.equal(shuffled.correct, straight.correct[order])
    assert torch.equal(shuffled.worst_pose.values, straight.worst_pose.values[order])
    if straight.fooled is not None:
        assert torch.equal(shuffled.fooled.unpack(), straight.fooled.unpack()[order])
    assert torch.equal(shuffled.worst_pose.values, straight.worst_pose.values[order])


@few
@given(cases, attacks, batch_sizes)
def test_accuracy_does_not_depend_on_whether_fooled_images_are_dropped(
    case: Case, attack: Attack, batch_size: int
) -> None:
    kept = case.evaluate(attack)
    dropped = case.evaluate(attack, only_accuracy=True, batch_size=batch_size)
    assert torch.equal(only_result(dropped).correct, only_result(kept).correct)
    assert only_result(dropped).forward_passes <= only_result(kept).forward_passes


@few
@given(cases, attacks)
def test_the_worst_pose_is_in_the_space_and_as_bad_as_is_said(case: Case, attack: Attack) -> None:
    result = only_result(case.evaluate(attack))
    assert case.space.contains(result.worst_pose).all()
    if result.fooled is not None:
        assert torch.equal(result.correct, ~result.fooled.unpack().any(1))


@settings(few, max_examples=8)
@given(many, attacks, st.booleans(), st.floats(0, 1))
def test_the_result_does_not_depend_on_being_stopped_and_continued(
    case: Case, attack: Attack, only_accuracy: bool, moment: float
) -> None:
    calls: list[int] = []

    def model(images: Tensor, stop_after: float = float("inf")) -> Tensor:
        if len(calls) >= stop_after:
            raise KeyboardInterrupt
        calls.append(len(images))
        return case.model(images)

    ask = partial(
        evaluate_any,
        data=case.data,
        attacks=[attack],
        space=case.space,
        only_accuracy=only_accuracy,
        batch_size=256,
    )
    unbroken = ask(model)
    total = len(calls)
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        calls.clear()
        try:
            ask(partial(model, stop_after=moment * total), state=state)
        except KeyboardInterrupt:
            calls.clear()
        continued = ask(model, state=state)
    if only_accuracy:
        assert torch.equal(only_result(continued).correct, only_result(unbroken).correct)
    else:
        assert_same(continued, unbroken)


@few
@given(cases, attacks, st.integers(0, 2**40))
def test_the_same_generator_gives_the_same_result(case: Case, attack: Attack, seed: int) -> None:
    once = case.evaluate(attack, generator=torch.Generator().manual_seed(seed))
    again = case.evaluate(attack, generator=torch.Generator().manual_seed(seed))
    assert_same(once, again)


@few
@given(cases, st.one_of(randoms, climbs), st.integers(0, 2**40))
def test_another_seed_gives_other_poses(case: Case, attack: Attack, seed: int) -> None:
    one = only_result(case.evaluate(attack, generator=torch.Generator().manual_seed(seed)))
    two = only_result(case.evaluate(attack, generator=torch.Generator().manual_seed(seed + 1)))
    assert not (one.worst_pose.values == two.worst_pose.values).all(-1).any()


@few
@given(cases, attacks)
def test_without_a_generator_the_draws_are_those_of_a_fixed_seed(
    case: Case, attack: Attack
) -> None:
    before = torch.get_rng_state()
    assert_same(case.evaluate(attack), case.evaluate(attack))
    assert torch.equal(torch.get_rng_state(), before)


# Labels are drawn: the first so many may be of one class by chance.
@pytest.mark.filterwarnings("ignore:the first .* images are all of class")
@few
@given(cases, st.one_of(randoms, climbs), st.integers(1, 24))
def test_an_images_draws_do_not_depend_on_the_images_after_it(
    case: Case, attack: Attack, limit: int
) -> None:
    all_images, first = only_result(case.evaluate(attack)), case.evaluate(attack, limit=limit)
    expected = all_images.worst_pose.values[:limit]
    assert torch.equal(only_result(first).worst_pose.values, expected)
