"""Attacks on scores whose highest point is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from rigid_spaces import rigid, rigid_box
from upright import (
    PAPER,
    Attack,
    GridSearch,
    Pose,
    RandomSearch,
    RefiningSearch,
    Space,
    SpatialPGD,
    WorstCase,
)
from upright.attacks import pick_worst, usual_grid
from upright.testing import check_attack

SPACE = rigid_box(max_dx=2.0, max_dy=3.0, max_angle=30.0)
TOPS = torch.tensor([[0.3, -1.2, 7.0], [-1.9, 2.6, -29.0], [1.0, 0.0, 12.5], [0.0, 0.0, 0.0]])
ATTACKS: list[Attack] = [
    GridSearch((3, 2, 5)),
    RandomSearch(1),
    RandomSearch(7),
    SpatialPGD(),
    SpatialPGD(steps=3, restarts=4),
    SpatialPGD(steps=0),
    RefiningSearch(1),
    RefiningSearch(40),
    RefiningSearch(40, shifted=True),
]
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=str)


@dataclass
class Hill:
    """A score with its top at another pose for each image; it notes what it was asked."""

    tops: Tensor = field(default_factory=lambda: TOPS)
    asked: list[Tensor] = field(default_factory=list)
    """The poses of each call, tries x images x 3."""

    def __call__(self, pose: Pose) -> Tensor:
        away = (pose.values - self.tops) / torch.tensor([1.0, 1.0, 10.0])
        self.asked.append((pose.values + 0 * self.tops).detach().reshape(-1, len(self.tops), 3))
        return -(away**2).sum(-1)

    @property
    def passes(self) -> int:
        return sum(poses.shape[0] * poses.shape[1] for poses in self.asked)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def search(
    attack: Attack, score: Callable[[Pose], Tensor], count: int = len(TOPS), seed: int = 0
) -> WorstCase:
    return attack.search(score, SPACE, count, generator=generator(seed))


class TestEveryAttack:
    @every_attack
    def test_keeps_the_rules_of_attacks(self, attack: Attack) -> None:
        check_attack(attack, SPACE)

    @every_attack
    def test_forward_passes_are_what_the_score_was_asked(self, attack: Attack) -> None:
        hill = Hill()
        found = search(attack, hill)
        assert found.forward_passes == hill.passes == attack.passes_per_image * len(TOPS)

    @every_attack
    def test_does_not_depend_on_the_scale_of_the_score(self, attack: Attack) -> None:
        plain, stretched = search(attack, Hill()), search(attack, lambda pose: 4 * Hill()(pose))
        assert torch.equal(plain.pose.values, stretched.pose.values)

    @every_attack
    def test_does_not_depend_on_the_zero_of_the_score(self, attack: Attack) -> None:
        plain, lifted = search(attack, Hill()), search(attack, lambda pose: Hill()(pose) - 3)
        # Where a search computes with differences of scores, they are rounded.
        torch.testing.assert_close(plain.pose.values, lifted.pose.values, rtol=0, atol=1e-4)

    @every_attack
    def test_the_worst_pose_alone_is_that_of_the_search(self, attack: Attack) -> None:
        hill = Hill()
        pose = attack.worst_pose(hill, SPACE, len(TOPS), generator=generator())
        assert torch.equal(pose.values, search(attack, Hill()).pose.values)
        assert hill.passes == attack.passes_of_worst_pose * len(TOPS)
        assert attack.passes_of_worst_pose <= attack.passes_per_image

    @every_attack
    def test_a_single_image_is_searched_like_any_other(self, attack: Attack) -> None:
        hill = Hill(tops=TOPS[:1])
        found = search(attack, hill, count=1)
        assert found.pose.shape == found.score.shape == (1,)
        assert hill.passes == attack.passes_per_image


OTHERS = ["zoom", "rotate(-5..20) blur(2px)", "brightness(-0.1..0) stretch", "hue gamma shear"]


class TestOtherSpaces:
    """A score that rises towards the upper end of every axis, in units of its range."""

    @pytest.mark.parametrize("text", OTHERS)
    @pytest.mark.parametrize(
        "attack",
        [RandomSearch(7), SpatialPGD(), SpatialPGD(steps=200), RefiningSearch(30)],
        ids=str,
    )
    def test_attacks_climb_within_the_limits(self, attack: Attack, text: str) -> None:
        space = Space.of(text)
        ranges = torch.tensor([high - low for low, high in space.limits])
        asked: list[Pose] = []

        def score(pose: Pose) -> Tensor:
            asked.append(pose)
            return (pose.values / ranges).sum(-1)

        found = attack.search(score, space, 30, generator=generator())
        assert all(space.contains(pose).all() for pose in asked)
        assert found.pose.chain == space.chain
        start = space.sample(30, generator=generator()).values / ranges
        assert found.score.mean() > start.sum(-1).mean()
        if isinstance(attack, SpatialPGD) and attack.steps == 200:  # enough for the whole range
            ends = torch.tensor([high for _, high in space.limits])
            torch.testing.assert_close(found.pose.values, ends.expand(30, -1))

    @pytest.mark.parametrize("text", OTHERS)
    def test_a_step_is_half_a_per_cent_of_the_range_of_its_axis(self, text: str) -> None:
        space = Space.of(text)
        start = space.zeros(1)
        moved = SpatialPGD()._step(lambda pose: pose.values.sum(-1), space, start)
        expected = [(high - low) / 200 for low, high in space.limits]
        assert moved.values[0].tolist() == pytest.approx(expected)

    @pytest.mark.parametrize("text", OTHERS)
    def test_a_grid_is_tried_whole(self, text: str) -> None:
        space = Space.of(text)
        attack = usual_grid(space)
        found = attack.search(lambda pose: pose.values.sum(-1), space, 1, generator=generator())
        assert found.forward_passes == attack.passes_per_image
        assert found.pose.values.tolist() == [torch.tensor(space.limits)[:, 1].tolist()]

    def test_step_sizes_for_another_number_of_axes_are_refused(self) -> None:
        attack = SpatialPGD(step_size=(0.1, 0.1, 1.0))
        with pytest.raises(ValueError, match="1 axes, but 3 sizes of a step are given; give one"):
            attack.search(lambda pose: pose.zoom, Space.of("zoom"), 2, generator=generator())


class TestGridSearch:
    def test_finds_the_best_pose_of_the_grid(self) -> None:
        found = search(GridSearch((5, 4, 7)), Hill()).pose.values
        values = [
            [-2, -1, 0, 1, 2],
            [-3, -1, 1, 3],
            [-30, -20, -10, 0, 10, 20, 30],
        ]
        for top, pose in zip(TOPS[:3].tolist(), found[:3].tolist(), strict=True):
            expected = [
                min(axis, key=lambda value, aim=aim: abs(value - aim))  # type: ignore[misc]
                for axis, aim in zip(values, top, strict=True)
            ]
            assert pose == expected

    def test_tries_every_pose_once_on_every_image(self) -> None:
        hill = Hill()
        search(GridSearch((2, 2, 3)), hill)
        (asked,) = hill.asked
        expected = list(itertools.product([-2, 2], [-3, 3], [-30, 0, 30]))
        for image in range(len(TOPS)):
            assert asked[:, image].tolist() == [list(pose) for pose in expected]

    def test_all_images_share_the_candidates(self) -> None:
        poses = GridSearch().candidates(PAPER, 9, generator=generator())
        assert poses.shape == (775, 1)
        assert GridSearch.shared
        assert not RandomSearch.shared

    @pytest.mark.parametrize("counts", [(), (0, 1, 1)])
    def test_impossible_counts_are_refused(self, counts: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="a grid needs counts of at least 1, but got"):
            GridSearch(counts)

    @pytest.mark.parametrize("counts", [(5, 5), (5, 5, 5, 5)])
    def test_counts_for_another_number_of_axes_are_refused(self, counts: tuple[int, ...]) -> None:
        with pytest.raises(
            ValueError, match=r"for each of its axes \(dx, dy, angle\), as in grid-"
        ):
            search(GridSearch(counts), Hill())


class TestRandomSearch:
    def test_every_image_and_every_try_draws_its_own_pose(self) -> None:
        poses = RandomSearch(6).candidates(SPACE, 5, generator=generator())
        assert poses.shape == (6, 5)
        assert len(poses.values.reshape(-1, 3).unique(dim=0)) == 30

    def test_draws_fill_the_continuous_box(self) -> None:
        drawn = RandomSearch(50).candidates(SPACE, 60, generator=generator()).values
        limits = torch.tensor(SPACE.limits)[:, 1]
        for quantile in (0.1, 0.5, 0.9):
            expected = limits * (2 * quantile - 1)
            actual = drawn.reshape(-1, 3).quantile(quantile, dim=0)
            assert ((actual - expected).abs() < 0.06 * limits).all()

    def test_takes_the_worst_of_its_own_draws(self) -> None:
        hill = Hill()
        found = search(RandomSearch(8), hill)
        scores = Hill()(Pose(hill.asked[0]))
        assert torch.equal(found.score, scores.max(0).values)

    def test_more_tries_find_worse_poses(self) -> None:
        hill = Hill(tops=TOPS[:1].expand(2000, 3))
        means = [search(RandomSearch(k), hill, 2000).score.mean() for k in (1, 2, 5, 20)]
        assert means == sorted(means)

    def test_more_of_the_same_draws_never_find_a_better_pose(self) -> None:
        poses = RandomSearch(30).candidates(SPACE, len(TOPS), generator=generator())
        scores = Hill()(poses)
        worst = torch.stack([pick_worst(poses[:k], scores[:k]).score for k in range(1, 31)])
        assert (worst.diff(dim=0) >= 0).all()

    def test_fewer_images_have_the_first_draws_of_more(self) -> None:
        few = RandomSearch(4).candidates(SPACE, 3, generator=generator())
        many = RandomSearch(4).candidates(SPACE, 100, generator=generator())
        assert torch.equal(few.values, many[:, :3].values)

    def test_at_least_one_try(self) -> None:
        with pytest.raises(ValueError, match="a random search needs at least 1 try, but got 0"):
            RandomSearch(0)


class TestSpatialPGD:
    def test_climbs(self) -> None:
        hill = Hill(tops=TOPS[:3])
        found = search(SpatialPGD(), hill, 3)
        start = Hill(tops=TOPS[:3])(Pose(hill.asked[0][0]))
        assert (found.score > start).all()

    def test_reaches_the_top_to_within_a_step(self) -> None:
        attack = SpatialPGD(steps=300, step_size=(0.05, 0.05, 0.5))
        away = (search(attack, Hill()).pose.values - TOPS).abs()
        assert (away <= torch.tensor([0.05, 0.05, 0.5]) + 1e-4).all()

    def test_each_step_has_the_size_it_was_given_in_px_px_and_degrees(self) -> None:
        hill = Hill(tops=torch.full((5, 3), 100.0))
        attack = SpatialPGD(steps=2, step_size=(0.1, 0.2, 3.0))
        wide = rigid(50, 90)
        attack.search(hill, wide, 5, generator=generator())
        steps = torch.cat(hill.asked).diff(dim=0)
        torch.testing.assert_close(steps, torch.tensor([0.1, 0.2, 3.0]).expand_as(steps))

    def test_the_papers_steps_are_1_percent_of_its_limits(self) -> None:
        assert SpatialPGD().steps == 5
        hill = Hill(tops=torch.full((200, 3), 100.0))
        SpatialPGD(steps=1).search(hill, PAPER, 200, generator=generator())
        steps = torch.cat(hill.asked).diff(dim=0)[0]
        # All but those that start so near to a limit that the step would lead over it.
        expected = torch.tensor([high / 100 for _, high in PAPER.limits])
        torch.testing.assert_close(steps.median(0).values, expected)

    def test_ends_on_the_border_when_the_top_is_outside(self) -> None:
        attack = SpatialPGD(steps=20, step_size=(1.0, 1.0, 10.0))
        found = search(attack, Hill(tops=torch.tensor([[90.0, -90.0, 900.0]])), 1)
        assert found.pose.values.tolist() == [[2, -3, 30]]

    def test_starts_from_another_random_pose_for_each_image(self) -> None:
        starts = search(SpatialPGD(steps=0), Hill(tops=torch.zeros(50, 3)), 50).pose.values
        assert len(starts.unique(dim=0)) == 50
        assert (starts.abs().amax(0) > 0.9 * torch.tensor(SPACE.limits)[:, 1]).all()

    def test_takes_the_worst_of_its_restarts(self) -> None:
        hill = Hill()
        found = search(SpatialPGD(steps=2, restarts=5), hill)
        ends = torch.cat(hill.asked[2::3])
        assert len(ends) == 5
        assert len(torch.cat(hill.asked[::3]).reshape(-1, 3).unique(dim=0)) == 5 * len(TOPS)
        assert torch.equal(found.score, Hill()(Pose(ends)).max(0).values)

    def test_the_pose_alone_saves_the_last_pass(self) -> None:
        hill = Hill()
        SpatialPGD().worst_pose(hill, SPACE, len(TOPS), generator=generator())
        assert hill.passes == 5 * len(TOPS)

    def test_fewer_images_have_the_first_starts_of_more(self) -> None:
        attack = SpatialPGD(steps=1, restarts=3)
        few, many = Hill(tops=torch.zeros(2, 3)), Hill(tops=torch.zeros(9, 3))
        search(attack, few, 2)
        search(attack, many, 9)
        for asked_few, asked_many in zip(few.asked, many.asked, strict=True):
            assert torch.equal(asked_few, asked_many[:, :2])

    def test_works_where_gradients_are_switched_off_and_leaves_no_graph(self) -> None:
        with torch.no_grad():
            found = search(SpatialPGD(), Hill())
        assert not found.score.requires_grad
        assert not found.pose.values.requires_grad

    def test_a_score_without_gradient_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"this model gives none; use .* grid-775 or wo-10"):
            search(SpatialPGD(), lambda pose: pose.dx.detach())

    @pytest.mark.parametrize(("steps", "restarts"), [(-1, 1), (5, 0)])
    def test_impossible_settings_are_refused(self, steps: int, restarts: int) -> None:
        with pytest.raises(ValueError, match="steps must be at least 0 and restarts at least 1"):
            SpatialPGD(steps=steps, restarts=restarts)


class TestPickWorst:
    def test_the_first_of_equal_scores_wins(self) -> None:
        poses = Pose.of(dx=[[1.0], [2.0], [3.0]])
        worst = pick_worst(poses, torch.tensor([[0.0, 5.0], [7.0, 5.0], [7.0, 1.0]]))
        assert worst.pose.dx.tolist() == [2, 1]
        assert worst.score.tolist() == [7, 5]
        assert worst.forward_passes == 6

    def test_candidates_of_each_image_are_its_own(self) -> None:
        poses = Pose.of(dx=[[1.0, 10.0], [2.0, 20.0]])
        worst = pick_worst(poses, torch.tensor([[0.0, 5.0], [7.0, 1.0]]))
        assert worst.pose.dx.tolist() == [2, 10]
