"""The box of poses: its grid, its draws, its projection, and the paper's construction of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from geometry_reference import matrix
from rigid_spaces import rigid, rigid_box
from upright import PAPER, Pose, Space
from upright.families import Axis

SPACE = rigid_box(max_dx=2.0, max_dy=3.0, max_angle=30.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mirrored(*limits: float) -> tuple[tuple[float, float], ...]:
    return tuple((-limit, limit) for limit in limits)


class TestLimits:
    def test_the_papers_space_is_3_px_and_30_degrees(self) -> None:
        assert PAPER.limits == mirrored(3, 3, 30)

    def test_of_has_one_limit_for_both_translations(self) -> None:
        assert rigid(2, 15).limits == mirrored(2, 2, 15)

    def test_relative_limits_are_fractions_of_width_and_height(self) -> None:
        relative = rigid_box(max_dx=0.1, max_dy=0.25, max_angle=20, unit="image")
        space = relative.in_pixels(height=200, width=300)
        assert space.limits == mirrored(30, 50, 20)
        assert [axis.unit for axis in space.axes] == ["px", "px", "degrees"]

    def test_limits_in_pixels_do_not_depend_on_the_image(self) -> None:
        assert PAPER.in_pixels(height=224, width=224) == PAPER

    def test_relative_limits_must_be_resolved_first(self) -> None:
        relative = rigid(0.1, 30, unit="image")
        with pytest.raises(ValueError, match=r"relative .*; call in_pixels\(height, width\) first"):
            relative.grid((3, 3, 3))

    @pytest.mark.parametrize("limit", [-1.0, math.nan, math.inf])
    def test_impossible_limits_are_refused(self, limit: float) -> None:
        with pytest.raises(ValueError, match=f"'{limit}px' is no limit of dy"):
            rigid_box(max_dy=limit)
        with pytest.raises(ValueError, match="dy cannot go from"):
            Axis("dy", "px", -limit, limit)

    def test_unknown_unit_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"'2mm' is no limit of dx: .* px or % behind it"):
            Space.of("shift(2mm)")
        with pytest.raises(ValueError, match="unit 'mm' is none of"):
            Axis("dx", "mm")  # type: ignore[arg-type]


class TestGrid:
    @pytest.mark.parametrize(("counts", "size"), [((5, 5, 31), 775), ((10, 10, 75), 7500)])
    def test_the_papers_grids(self, counts: tuple[int, int, int], size: int) -> None:
        grid = PAPER.grid(counts)
        assert grid.shape == (size,)
        assert len({tuple(pose) for pose in grid.values.tolist()}) == size

    @pytest.mark.parametrize("counts", [(5, 5, 31), (10, 10, 75), (1, 2, 3)])
    def test_the_papers_poses_are_the_bits_that_they_were(self, counts: tuple[int, ...]) -> None:
        """By the formula of the first days, when there were no other spaces."""
        axes = [
            limit * (torch.arange(1 - count, count, 2, dtype=torch.float64) / max(1, count - 1))
            for limit, count in zip((3.0, 3.0, 30.0), counts, strict=True)
        ]
        parts = [part.flatten().float() for part in torch.meshgrid(*axes, indexing="ij")]
        assert PAPER.grid(counts).values.equal(torch.stack(parts, -1))

    @given(st.floats(0, 100), st.floats(0, 100), st.integers(2, 40))
    def test_limits_that_do_not_mirror_each_other(self, down: float, up: float, count: int) -> None:
        space = Space.of(f"rotate({-down!r}..{up!r})")
        found = space.grid((count,)).angle.double().numpy()
        even = np.linspace(-down, up, count)
        nearest, *_ = order = np.abs(even).argsort(kind="stable")
        tied = np.abs(even)[order[1]] - np.abs(even)[nearest] < 1e-9 * (down + up)
        assume(count == 2 or not tied)
        if count % 2 and 0 < nearest < count - 1:  # an inner value moves to the identity
            even[nearest] = 0.0
            assert (found == 0).any()
        np.testing.assert_allclose(found, even, atol=1e-5)
        assert (found[0], found[-1]) == (np.float32(-down), np.float32(up))
        assert space.contains(space.grid((count,))).all()
        assert space.grid((1,)).angle.tolist() == [0]

    @given(st.floats(0, 100), st.integers(2, 40))
    def test_an_axis_of_one_direction_starts_at_zero(self, limit: float, count: int) -> None:
        found = Space.of(f"blur({limit!r}px)").grid((count,)).blur
        assert found[0] == 0
        assert found[-1] == np.float32(limit)
        assert (found.diff() >= 0).all()

    def test_the_last_axis_of_the_text_runs_fastest(self) -> None:
        poses = Space.of("rotate(1) zoom(0.5..2) brightness(0.1)").grid((2, 3, 2))
        assert poses.shape == (12,)
        assert poses.angle.tolist() == [-1] * 6 + [1] * 6
        assert poses.brightness.sign().tolist() == [-1, 1] * 6
        assert poses.zoom.exp().tolist() == pytest.approx([0.5, 0.5, 1, 1, 2, 2] * 2)

    def test_values_are_evenly_spaced_with_both_ends(self) -> None:
        grid = PAPER.grid((5, 3, 31))
        assert grid.dx.unique().tolist() == [-3, -1.5, 0, 1.5, 3]
        assert grid.dy.unique().tolist() == [-3, 0, 3]
        assert grid.angle.unique().tolist() == list(range(-30, 31, 2))

    def test_each_axis_keeps_its_own_limit(self) -> None:
        assert SPACE.grid((2, 2, 2)).values.abs().unique(dim=0).tolist() == [[2, 3, 30]]

    def test_a_single_value_is_zero(self) -> None:
        assert SPACE.grid((1, 1, 1)).values.tolist() == [[0, 0, 0]]

    @given(st.floats(0, 100), st.integers(0, 40))
    def test_an_odd_grid_is_symmetric_and_has_the_zero_pose(self, limit: float, half: int) -> None:
        angles = rigid(0, limit).grid((1, 1, 2 * half + 1)).angle
        assert angles[half] == 0
        assert torch.equal(angles, -angles.flip(0))

    @given(st.floats(0, 100), st.integers(2, 12), st.integers(1, 6))
    def test_a_finer_grid_holds_the_coarser_one_exactly(
        self, limit: float, count: int, factor: int
    ) -> None:
        space = rigid(0, limit)
        coarse = space.grid((1, 1, count)).angle
        fine = space.grid((1, 1, (count - 1) * factor + 1)).angle
        assert torch.equal(fine[::factor], coarse)

    @pytest.mark.parametrize("counts", [(5, 5), (5, 5, 0), (1, 1, 1, 1)])
    def test_other_counts_are_refused(self, counts: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="needs a count of at least 1 for each of its axes"):
            SPACE.grid(counts)


class TestSample:
    draws = SPACE.sample(4000, generator=generator())

    def test_draws_lie_in_the_box(self) -> None:
        assert SPACE.contains(self.draws).all()

    @pytest.mark.parametrize("axis", [0, 1, 2])
    def test_draws_are_uniform(self, axis: int) -> None:
        values, (_, limit) = self.draws.values[:, axis].double(), SPACE.limits[axis]
        assert values.mean().item() == pytest.approx(0, abs=0.05 * limit)
        assert values.var().item() == pytest.approx(limit**2 / 3, rel=0.05)
        test = stats.kstest(values.numpy(), stats.uniform(-limit, 2 * limit).cdf)
        assert test.pvalue > 0.01

    @pytest.mark.parametrize(
        "text", ["rotate(-5..40)", "zoom(0.9..1.3)", "blur(2px)", "brightness(-0.3..0)"]
    )
    def test_draws_are_uniform_where_limits_do_not_mirror_each_other(self, text: str) -> None:
        space = Space.of(text)
        ((low, high),) = space.limits
        drawn = space.sample(4000, generator=generator())
        assert space.contains(drawn).all()
        values = drawn.values[:, 0].double().numpy()
        assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 0.01

    def test_dx_dy_and_angle_are_independent(self) -> None:
        correlation = np.corrcoef(self.draws.values.double().numpy().T)
        assert np.abs(correlation - np.eye(3)).max() < 0.05

    def test_the_same_generator_gives_the_same_draws(self) -> None:
        again = SPACE.sample(4000, generator=generator())
        other = SPACE.sample(4000, generator=generator(1))
        assert torch.equal(self.draws.values, again.values)
        assert not torch.isclose(self.draws.values, other.values).all(-1).any()

    def test_draws_are_the_generator_s_numbers_stretched_to_the_box(self) -> None:
        unit = torch.rand(4000, 3, generator=generator())
        assert self.draws.values.equal((2 * unit - 1) * torch.tensor(SPACE.limits)[:, 1])

    def test_shape(self) -> None:
        assert SPACE.sample(4, 7, generator=generator()).shape == (4, 7)

    def test_global_state_is_left_alone_when_there_is_a_generator(self) -> None:
        before = torch.get_rng_state()
        SPACE.sample(5, generator=generator())
        assert torch.equal(torch.get_rng_state(), before)


class TestProject:
    def test_each_part_is_clipped_to_its_limit(self) -> None:
        pose = Pose.of([-5.0, 1.0, 2.5], [4.0, -9.0, 1.0], [0.0, 45.0, -31.0])
        projected = SPACE.project(pose)
        assert projected.values.tolist() == [[-2, 3, 0], [1, -3, 30], [2, 1, -30]]
        assert SPACE.contains(projected).all()

    def test_poses_of_the_box_stay_where_they_are(self) -> None:
        inside = SPACE.sample(50, generator=generator())
        assert torch.equal(SPACE.project(inside).values, inside.values)

    def test_limits_that_do_not_mirror_each_other(self) -> None:
        space = Space.of("rotate(-5..40) blur(2px)")
        pose = space.pose(angle=[-9.0, 50.0, 1.0], blur=[-1.0, 3.0, 0.5])
        assert space.project(pose).values.tolist() == [[-5, 0], [40, 2], [1, 0.5]]
        assert space.contains(pose).tolist() == [False, False, True]

    def test_fractions_are_of_the_larger_limit_and_give_the_pose_back(self) -> None:
        space = Space.of("rotate(-5..40) blur(2px) shift(0px)")
        pose = space.pose(angle=[-5.0, 20.0], blur=[1.0, 2.0])
        fractions = space.fractions(pose)
        assert fractions.tolist() == [[-0.125, 0.5, 0, 0], [0.5, 1, 0, 0]]
        assert space.at_fractions(fractions).values.equal(pose.values)

    def test_contains_looks_at_every_part(self) -> None:
        pose = Pose.of([2.0, 2.1, 0.0, 0.0], [3.0, 0.0, -3.1, 0.0], [30.0, 0.0, 0.0, -30.5])
        assert SPACE.contains(pose).tolist() == [True, False, False, False]


triples = st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.floats(-80, 80))


class TestCovering:
    def test_a_set_of_shifts_needs_its_diameter(self) -> None:
        space = Space.covering([Pose.of(dx=[-1.0, 2.0, 0.5], dy=[0.0, 0.0, -1.0])])
        assert space.limits == mirrored(3, 1, 0)

    def test_a_set_of_turns_needs_no_shift(self) -> None:
        assert Space.covering([Pose.of(angle=[-10.0, 20.0])]).limits == mirrored(0, 0, 30)

    def test_the_largest_of_all_sets_counts_for_each_part(self) -> None:
        sets = [Pose.of(dx=[0.0, 2.0]), Pose.of(dy=[-1.0, 3.0]), Pose.of(angle=[5.0, 6.0])]
        assert Space.covering(sets).limits == mirrored(2, 4, 1)

    def test_members_of_different_sets_need_not_reach_each_other(self) -> None:
        assert Space.covering([Pose.of(dx=0.0), Pose.of(dx=50.0)]).limits == mirrored(0, 0, 0)

    def test_a_turn_carries_the_shift_that_came_before_it(self) -> None:
        # From (1, 0) turned by 0 to (1, 0) turned by 90: the turn takes (1, 0) to (0, -1), and
        # what is left is (1, 1); the way back is (1, -1).
        space = Space.covering([Pose.of(dx=1.0, angle=[0.0, 90.0])])
        assert space.limits == mirrored(1, 1, 90)

    def test_the_shorter_way_round_counts(self) -> None:
        assert Space.covering([Pose.of(angle=[170.0, -170.0])]).limits == mirrored(0, 0, 20)

    @given(st.lists(st.lists(triples, min_size=1, max_size=4), min_size=1, max_size=3))
    def test_every_member_is_reached_from_every_other_and_no_limit_is_larger_than_needed(
        self, sets: list[list[tuple[float, float, float]]]
    ) -> None:
        poses = [Pose(torch.tensor(members, dtype=torch.float64)) for members in sets]
        needed = np.zeros(3)
        for members in sets:
            for start in members:
                for end in members:
                    step = matrix(*end) @ np.linalg.inv(matrix(*start))
                    turn = math.degrees(math.atan2(step[0, 1], step[0, 0]))
                    needed = np.maximum(needed, np.abs([step[0, 2], step[1, 2], turn]))
        limits = np.array(Space.covering(poses).limits)
        np.testing.assert_allclose(limits, np.stack((-needed, needed), 1), atol=1e-9)


@pytest.mark.parametrize("call", ["project", "contains", "fractions"])
def test_poses_of_other_families_are_refused(call: str) -> None:
    other = Space.of("rotate stretch").pose(angle=30.0)
    with pytest.raises(ValueError, match="their families differ"):
        getattr(PAPER, call)(other)
    with pytest.raises(ValueError, match="different families cannot be joined"):
        Pose.cat([PAPER.zeros(1), other])
