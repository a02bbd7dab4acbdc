"""What follows from fooled poses, against loops over poses and images, and its properties."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bar_images import HEIGHT, WIDTH, bars, trained_network
from upright import GridSearch, Pose, evaluate, warp
from upright.fooled import Curve, FooledPoses, box_sizes, expected_worst_of, pack_bits
from upright.space import PAPER, Space

SPACES = (
    ("shift(3px) rotate(30)", (3, 5, 5)),
    ("shift(3px) rotate(30)", (2, 2, 4)),  # without the identity
    ("rotate(-10..20) zoom(0.8..1.1)", (5, 3)),
    ("blur(0..2px)", (4,)),
    ("shift(2px, 0px) brightness(0.3)", (3, 3, 5)),
)


def fooled_at_random(space, counts, *, images=30, rate=0.2, seed=0):
    """Answers of nobody: bits at random; the identity, where it is tried, as it is."""
    draw = torch.Generator().manual_seed(seed)
    poses = Space.of(space).grid(counts)
    rates = rate * torch.rand(images, 1, generator=draw) ** 3
    fooled = torch.rand(images, len(poses), generator=draw) < rates
    natural = torch.rand(images, generator=draw) < 0.2
    fooled |= natural[:, None] & (poses.values == 0).all(1)
    if (poses.values == 0).all(1).any():
        natural = fooled_as_it_is(poses, fooled)
    return FooledPoses(poses, pack_bits(fooled), natural)


def linear(images):
    """A model of weights at random, for images of any size."""
    weights = torch.randn(images[0].numel(), 4, generator=torch.Generator().manual_seed(0))
    return images.flatten(1) @ weights.to(images)


def fooled_as_it_is(poses, fooled):
    return (fooled & (poses.values == 0).all(1)).any(1)


def tried(answers):
    """Poses as lists of numbers, and for each image those that fool it, the identity included."""
    poses = [tuple(values) for values in answers.poses.values.double().tolist()]
    table = answers.unpack().tolist()
    zero = (0.0,) * len(poses[0])
    fooling = []
    for image, row in enumerate(table):
        found = {pose for pose, bit in zip(poses, row, strict=True) if bit}
        if zero not in poses and answers.natural_fooled[image]:
            found.add(zero)
        fooling.append(found)
    return poses, fooling


def size_of(pose, space):
    """How much of the box contains a pose, written once more."""
    parts = [
        abs(value) / max(-axis.low, axis.high) if value else 0.0
        for value, axis in zip(pose, space.axes, strict=True)
    ]
    return max(parts), math.hypot(*parts)


@pytest.fixture(params=SPACES, ids=lambda pair: f"{pair[0]} {pair[1]}")
def answers(request):
    return fooled_at_random(*request.param)


class TestSmallest:
    def test_no_pose_that_fools_an_image_is_smaller(self, answers):
        space, (_, fooling) = Space(answers.poses.chain), tried(answers)
        found = answers.smallest
        for image, poses in enumerate(fooling):
            pose = tuple(found.pose.values[image].double().tolist())
            if not poses:
                assert found.size[image] == math.inf
                assert all(math.isnan(value) for value in pose)
                continue
            assert pose in poses
            size, norm = size_of(pose, space)
            assert found.size[image] == pytest.approx(size, abs=1e-6)
            for other in poses:
                rival = size_of(other, space)
                assert size < rival[0] + 1e-6
                assert abs(size - rival[0]) > 1e-6 or norm < rival[1] + 1e-5

    def test_some_are_fooled_and_some_are_not(self, answers):
        never = answers.smallest.size.isinf()
        assert 0 < never.sum() < len(never)

    def test_limits_in_per_cent_of_an_unknown_size_are_refused(self):
        poses = Pose(torch.zeros(1, 3), Space.of("shift(10%) rotate(30)").chain)
        with pytest.raises(ValueError, match="in_pixels"):
            box_sizes(poses)


class TestBySize:
    def test_a_loop_over_boxes_agrees(self, answers):
        space, (poses, fooling) = Space(answers.poses.chain), tried(answers)
        curve = answers.by_size
        scales = {0.0, 1.0, *(size_of(pose, space)[0] for pose in poses), *np.linspace(0, 1, 11)}
        for scale in scales:
            right = [
                not any(size_of(pose, space)[0] <= scale + 1e-6 for pose in found)
                for found in fooling
            ]
            assert curve(scale + 1e-6) == pytest.approx(np.mean(right))

    def test_it_falls_from_natural_accuracy_to_that_under_all_poses(self, answers):
        curve, (_, fooling) = answers.by_size, tried(answers)
        assert float(curve.at[0]) == 0
        assert float(curve.at[-1]) == 1
        assert (curve.accuracy.diff() <= 0).all()
        assert curve(0) == pytest.approx(1 - answers.natural_fooled.double().mean())
        assert curve(1) == pytest.approx(np.mean([not found for found in fooling]))

    def test_a_box_that_is_searched_by_itself_gives_what_the_scaled_one_gave(self):
        """Evaluated anew: a half of the box, with the poses of the whole that lie in it."""
        data = bars(40, seed=2)
        whole, part = (
            evaluate(trained_network(), data, attacks=[grid], space=space)
            for grid, space in (
                ("grid-5x5x9", "shift(1px) rotate(20)"),
                ("grid-3x3x5", "shift(0.5px) rotate(10)"),
            )
        )
        curve, inner = whole.attacks["grid-5x5x9"].fooled.by_size, part.attacks["grid-3x3x5"]
        assert curve(0.5) == pytest.approx(inner.accuracy)
        assert whole.natural_accuracy > curve(0.5) > curve(1)
        assert inner.fooled.by_size(1) == curve(0.5)


def by_enumeration(row, drawn, *, replacement):
    """How many of all draws of so many poses fool no image: a list of bits for each pose."""
    draws = itertools.product if replacement else itertools.combinations
    options = {"repeat": drawn} if replacement else {"r": drawn}
    found = [not any(each) for each in draws(row, **options)]
    return Fraction(sum(found), len(found))


class TestWorstOf:
    @pytest.mark.parametrize("replacement", [False, True])
    def test_all_draws_from_a_tiny_grid_agree(self, replacement):
        answers = fooled_at_random("rotate(30)", (5,), images=12, rate=0.8)
        curve = answers.worst_of_replaced if replacement else answers.worst_of
        for drawn in range(1, 6):
            rows = answers.unpack().tolist()
            each = [by_enumeration(row, drawn, replacement=replacement) for row in rows]
            assert curve(drawn) == pytest.approx(float(sum(each) / len(each)), abs=1e-15)

    @pytest.mark.parametrize("replacement", [False, True])
    def test_a_simulation_agrees(self, replacement):
        answers = fooled_at_random("shift(3px) rotate(30)", (3, 5, 5), images=20)
        curve = answers.worst_of_replaced if replacement else answers.worst_of
        draw, right, times = np.random.default_rng(0), ~answers.unpack().numpy(), 4000
        for drawn in (1, 3, 10, 40):
            found = [
                right[:, draw.choice(right.shape[1], drawn, replace=replacement)].all(1).mean()
                for _ in range(times)
            ]
            spread = np.std(found) / math.sqrt(times)
            assert curve(drawn) == pytest.approx(np.mean(found), abs=5 * spread)

    @pytest.mark.parametrize("replacement", [False, True])
    def test_exact_fractions_agree_where_binomials_overflow(self, replacement):
        total, counts = 2000, [0, 1, 7, 400, 1999, 2000]
        found = expected_worst_of(torch.tensor(counts), total, replacement=replacement)
        for drawn in (1, 2, 50, 1000, 1600, 1601, 2000):
            exact = sum(
                Fraction(total - count, total) ** drawn
                if replacement
                else Fraction(math.comb(total - count, drawn), math.comb(total, drawn))
                for count in counts
            ) / len(counts)
            assert float(found[drawn - 1]) == pytest.approx(float(exact), rel=1e-12)

    def test_it_falls_from_the_mean_over_poses_to_the_worst_case(self, answers):
        fooled, curve, other = answers.unpack(), answers.worst_of, answers.worst_of_replaced
        assert len(curve.at) == fooled.shape[1]
        for each in (curve, other):
            assert (each.accuracy.diff() <= 1e-15).all()
            assert each(1) == pytest.approx(float((~fooled).double().mean()))
        assert curve(len(curve.at)) == float((~fooled.any(1)).double().mean())
        assert (other.accuracy >= curve.accuracy - 1e-12).all()  # some poses are drawn again


class TestConsistency:
    def test_a_loop_over_images_agrees(self, answers):
        shares = []
        for image, row in enumerate(answers.unpack().tolist()):
            share = row.count(False) / len(row)
            if answers.natural_fooled[image]:
                assert answers.agreement[image].isnan()
            else:
                assert answers.agreement[image] == pytest.approx(share)
                shares.append(share)
        assert answers.consistency == pytest.approx(np.mean(shares))

    def test_the_answers_themselves_agree(self):
        """The model's classes at all poses, of images that are right as they are."""
        images, labels = bars(40, seed=2)
        found = evaluate(trained_network(), (images, labels), attacks=["grid-1x3x5"])
        fooled = found.attacks["grid-1x3x5"].fooled
        with torch.no_grad():
            natural = trained_network()(images).argmax(1)
            moved = [
                trained_network()(warp(images, fooled.poses[place : place + 1])).argmax(1)
                for place in range(len(fooled.poses))
            ]
        same = torch.stack(moved) == natural
        assert fooled.consistency == pytest.approx(same[:, natural == labels].double().mean())

    def test_without_a_right_answer_it_is_unknown(self):
        nobody = FooledPoses(
            PAPER.grid((1, 1, 3)),
            pack_bits(torch.ones(2, 3, dtype=torch.bool)),
            torch.ones(2, dtype=torch.bool),
        )
        assert math.isnan(nobody.consistency)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_order_of_images_and_of_poses_does_not_matter(data):
    answers = fooled_at_random(*data.draw(st.sampled_from(SPACES)), images=8, seed=1)
    fooled = answers.unpack()
    rows = data.draw(st.permutations(range(len(fooled))))
    columns = data.draw(st.permutations(range(fooled.shape[1])))
    other = FooledPoses(
        answers.poses[list(columns)],
        pack_bits(fooled[rows][:, columns]),
        answers.natural_fooled[rows],
    )
    same = {"rtol": 0, "atol": 1e-15, "equal_nan": True}
    torch.testing.assert_close(other.smallest.size, answers.smallest.size[rows], **same)
    torch.testing.assert_close(
        other.smallest.pose.values, answers.smallest.pose.values[rows], **same
    )
    torch.testing.assert_close(other.agreement, answers.agreement[rows], **same)
    for name in ("by_size", "worst_of", "worst_of_replaced"):
        one, two = getattr(answers, name), getattr(other, name)
        torch.testing.assert_close(two.at, one.at, **same)
        torch.testing.assert_close(two.accuracy, one.accuracy, **same)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(SPACES))
def test_one_more_fooling_pose_lowers_curves_and_sizes(seed, case):
    answers = fooled_at_random(*case, images=6, seed=seed)
    fooled = answers.unpack()
    draw = torch.Generator().manual_seed(seed)
    more = fooled | (torch.rand(fooled.shape, generator=draw) < 0.1)
    worse = FooledPoses(
        answers.poses,
        pack_bits(more),
        answers.natural_fooled | fooled_as_it_is(answers.poses, more),
    )
    assert (worse.smallest.size <= answers.smallest.size).all()
    for name in ("by_size", "worst_of", "worst_of_replaced"):
        assert (getattr(worse, name).accuracy <= getattr(answers, name).accuracy + 1e-15).all()


@given(st.floats(0, 1), st.floats(0, 1))
def test_scaled_boxes_nest(one, other):
    poses, (small, large) = PAPER.grid((3, 3, 7)), sorted((one, other))
    sizes = box_sizes(poses)
    assert (~(sizes <= small) | (sizes <= large)).all()
    scaled = Space.of(f"shift({3 * large!r}px) rotate({30 * large!r})")
    clear = (sizes - large).abs() > 1e-5
    assert torch.equal((sizes <= large)[clear], scaled.contains(poses)[clear])


class TestOfEvaluations:
    @pytest.mark.parametrize("view", [None, 6])
    def test_limits_in_per_cent_are_parts_of_what_the_model_sees(self, view):
        height, width = (HEIGHT, WIDTH) if view is None else (view, view)
        pixels = f"shift({width / 4}px, {height / 4}px) rotate(25)"
        relative, absolute = (
            evaluate(linear, bars(40, seed=2), attacks=["grid-3x5x5"], space=space, view=view)
            .attacks["grid-3x5x5"]
            .fooled
            for space in ("shift(25%) rotate(25)", pixels)
        )
        assert str(Space(relative.poses.chain)) == str(Space.of(pixels))
        assert relative.by_size.at.tolist() == [0.0, 0.5, 1.0]
        assert torch.equal(relative.smallest.size, absolute.smallest.size)

    @pytest.mark.parametrize("counts", [(3, 3, 5), (2, 2, 2)])
    def test_ends_are_the_accuracies_of_the_evaluation(self, counts):
        name = str(GridSearch(counts))
        found = evaluate(trained_network(), bars(60, seed=2), attacks=[name], include_identity=True)
        fooled = found.attacks[name].fooled
        assert fooled.by_size(0) == pytest.approx(found.natural_accuracy)
        assert fooled.by_size(1) == pytest.approx(found.attacks[name].accuracy)
        inside = fooled.smallest.size.isfinite()
        assert torch.equal(~inside, found.attacks[name].correct)

    def test_a_curve_says_where_it_begins(self):
        with pytest.raises(ValueError, match="begins at 1, after"):
            Curve(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))(0.5)
