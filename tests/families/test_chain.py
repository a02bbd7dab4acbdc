"""Chains: the order of their parts, one resampling for neighbours, groups, and batches."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from geometry_reference import scipy_resample, undone
from random_inputs import MIXED, draw, noise, parts_of
from upright import Pose, Space, warp, warp_all
from upright.families import FAMILIES, Chain, Shift, chain_of, matrix_inverse, matrix_product
from upright.warp import FILLS, Interpolation

ALL_SPATIAL = "shift(3px) rotate(30) zoom(0.8..1.2) stretch shear(8) perspective(0.15)"
ORANGE = "#ff8000"


def smooth(side: int) -> Tensor:
    """Two soft spots in the middle of a black image: nothing of them reaches its edges."""
    y, x = torch.meshgrid(*[torch.arange(side) - (side - 1) / 2] * 2, indexing="ij")
    spots = [(-8.0, 3.0, 14.0), (9.0, -6.0, 16.0)]
    light = [torch.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * s**2)) for a, b, s in spots]
    return torch.stack(light)[None].double()


class TestOrder:
    def test_the_family_on_the_right_acts_first(self) -> None:
        image = torch.zeros(1, 1, 9, 9)
        image[0, 0, 4, 6] = 1  # two to the right of the centre
        turned_first = Space.of("shift rotate").pose(dx=1.0, angle=90.0)
        shifted_first = Space.of("rotate shift").pose(dx=1.0, angle=90.0)
        assert warp(image, turned_first)[0, 0].nonzero().tolist() == [[2, 5]]
        assert warp(image, shifted_first)[0, 0].nonzero().tolist() == [[1, 4]]

    def test_the_matrix_is_the_product_in_the_order_of_the_text(self) -> None:
        pose, size = draw(ALL_SPATIAL, 5), (30, 50)
        expected = np.broadcast_to(np.eye(3), (5, 3, 3))
        for _, part in parts_of(pose):
            expected = expected @ part.chain.matrix(part.values, size).numpy()
        np.testing.assert_allclose(pose.chain.matrix(pose.values, size), expected, atol=1e-12)
        inverse = pose.chain.inverse_matrix(pose.values, size)
        np.testing.assert_allclose(inverse, np.linalg.inv(expected), atol=1e-12)

    @pytest.mark.parametrize("names", [*itertools.permutations(["shift", "shear", "zoom"])])
    def test_any_order_agrees_with_scipy(self, names: tuple[str, ...]) -> None:
        pose = draw(" ".join(names), 3)
        images = noise(3, 2, 12, 17)
        moved = warp(images, pose)
        for place, (image, result) in enumerate(zip(images, moved, strict=True)):
            parts = [(name, part.values[place].tolist()) for name, part in parts_of(pose)]
            expected = scipy_resample(image.numpy(), undone(parts, (12, 17)))
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)

    def test_all_spatial_families_at_once_agree_with_scipy(self) -> None:
        pose, images = draw(ALL_SPATIAL, 6), noise(6, 1, 33, 20)
        moved = warp(images, pose, fill="reflection")
        for place, (image, result) in enumerate(zip(images, moved, strict=True)):
            parts = [(name, part.values[place].tolist()) for name, part in parts_of(pose)]
            expected = scipy_resample(image.numpy(), undone(parts, (33, 20)), "reflection")
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)


class TestStages:
    @pytest.mark.parametrize(
        ("text", "stages"),
        [
            ("shift rotate zoom", ["shift rotate zoom"]),
            ("brightness contrast", ["contrast", "brightness"]),
            ("shift brightness rotate zoom", ["rotate zoom", "brightness", "shift"]),
            ("gamma shift rotate blur", ["blur", "shift rotate", "gamma"]),
        ],
    )
    def test_spatial_neighbours_are_one_stage_and_others_each_their_own(
        self, text: str, stages: list[str]
    ) -> None:
        chain = chain_of(text)
        found = [" ".join(each.name for each in stage.families) for stage in chain.stages]
        assert found == stages
        places = {axis.name: place for place, axis in enumerate(chain.axes)}
        for stage in chain.stages:
            names = [axis.name for each in stage.families for axis in each.axes]
            assert list(range(len(places)))[stage.columns] == [places[name] for name in names]

    def test_one_resampling_is_one_after_another_where_no_pixel_is_lost(self) -> None:
        """To the error of bilinear interpolation: an eighth of the second derivative along each
        axis, here at most 1 / 14² and, where it is zoomed, twice that; at each of 7 resamplings."""
        pose, image = draw(ALL_SPATIAL, 1), smooth(200)
        at_once, one_by_one = warp(image, pose), image
        for _, part in reversed(parts_of(pose)):
            one_by_one = warp(one_by_one, part)
        assert (at_once - image).abs().max() > 0.1
        bound = 7 * 2 * 2 / 8 / 14**2
        torch.testing.assert_close(at_once, one_by_one, rtol=0, atol=bound)

    def test_whole_shifts_and_quarter_turns_are_exact_in_any_order(self) -> None:
        image = F.pad(noise(1, 1, 6, 6, dtype=torch.float32), [10] * 4)
        for text in ("shift rotate", "rotate shift"):
            pose = Space.of(text).pose(dx=3.0, dy=-2.0, angle=90.0)
            one_by_one = image
            for name, _ in reversed(parts_of(pose)):
                turned = torch.rot90(one_by_one, 1, (2, 3))
                one_by_one = turned if name == "rotate" else one_by_one.roll((-2, 3), (2, 3))
            assert warp(image, pose).equal(one_by_one)

    def test_a_zoom_by_two_and_back_is_exact_at_the_pixels(self) -> None:
        pose = Space.of("zoom stretch").pose(
            zoom=math.log(2), stretch_x=-math.log(2), stretch_y=-math.log(2)
        )
        image = noise(1, 1, 9, 12, dtype=torch.float32)
        torch.testing.assert_close(warp(image, pose), image, rtol=0, atol=2e-6)

    @pytest.mark.parametrize("fill", [*FILLS, ORANGE])
    @pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
    def test_stages_are_done_one_after_another(self, fill: str, interpolation: Any) -> None:
        pose, images = draw(MIXED, 3), noise(3, 3, 9, 14)
        way: dict[str, Any] = {"fill": fill, "interpolation": interpolation}
        expected = images
        for stage in pose.chain.stages:
            part = Pose(pose.values[..., stage.columns], Chain(stage.families))
            expected = warp(expected, part, **way)
        torch.testing.assert_close(warp(images, pose, **way), expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("fill", ["black", "reflection", ORANGE])
    def test_a_canvas_is_laid_around_before_anything_else(self, fill: str) -> None:
        pose, images = draw(MIXED, 2), noise(2, 3, 6, 7)
        wide = warp(images, Pose.zeros(1), fill=fill, canvas=4)
        torch.testing.assert_close(
            warp(images, pose, fill=fill, canvas=4), warp(wide, pose, fill=fill), rtol=0, atol=1e-12
        )

    @pytest.mark.parametrize("interpolation", get_args(Interpolation))
    @pytest.mark.parametrize("fill", [*FILLS, ORANGE])
    def test_zero_is_the_identity_bit_for_bit(
        self, interpolation: Interpolation, fill: str
    ) -> None:
        for text in ("shift rotate zoom stretch shear perspective", MIXED, "shift gamma hue blur"):
            for dtype in (torch.float16, torch.float32):
                images = noise(2, 3, 11, 18, dtype=dtype)
                zero = Space.of(text).zeros(2)
                moved = warp(images, zero, fill=fill, interpolation=interpolation)
                assert moved.equal(images), text

    def test_gradcheck_through_several_stages(self) -> None:
        pose = draw(MIXED, 2)
        images = (0.4 + 0.2 * noise(2, 3, 4, 5)).requires_grad_()
        values = (0.5 * pose.values + 0.01).requires_grad_()

        def change(images: Tensor, values: Tensor) -> Tensor:
            return warp(images, pose.like(values), fill="border")

        assert torch.autograd.gradcheck(change, (images, values))

    def test_half_precision_is_rounded_once_at_the_end(self) -> None:
        images, pose = noise(3, 3, 16, 16, dtype=torch.float16), draw(MIXED, 3)
        exact = warp(images.float(), pose)
        assert warp(images, pose).equal(exact.half())

    def test_twice_shifts_what_was_resampled_before(self) -> None:
        pose, images, room = draw("shift(3px) rotate(30) zoom(0.8..1.2)", 1), noise(1, 1, 8, 8), 20
        found = warp(images, pose, interpolation="bilinear-twice")
        around = F.pad(images, [room] * 4)
        for names in (slice(1, None), slice(0, 1)):
            parts = [(name, part.values[0].tolist()) for name, part in parts_of(pose)[names]]
            side = around.shape[-1]
            moved = scipy_resample(around[0].numpy(), undone(parts, (side, side)))
            around = torch.from_numpy(moved)[None]
        expected = around[..., room:-room, room:-room]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)

    def test_twice_needs_a_shift_in_front(self) -> None:
        images = noise(1, 1, 4, 4)
        with pytest.raises(ValueError, match="give a space with shift in front"):
            warp(images, draw("rotate shift", 1), interpolation="bilinear-twice")
        turn = draw("rotate zoom", 1)  # what is not shifted is resampled once
        assert warp(images, turn, interpolation="bilinear-twice").equal(warp(images, turn))


class TestBatches:
    @pytest.mark.parametrize("text", ["zoom", ALL_SPATIAL, MIXED, "contrast hue", "blur shift"])
    @pytest.mark.parametrize("fill", ["black", ORANGE])
    @pytest.mark.parametrize("shape", [(3,), (1,), (4, 3), (4, 1), (2, 2, 3), (2, 2, 1)])
    def test_every_shape_agrees_with_one_by_one(
        self, text: str, fill: str, shape: tuple[int, ...]
    ) -> None:
        images, pose = noise(3, 3, 6, 9), draw(text, *shape)
        moved = warp(images, pose, fill=fill)
        assert moved.shape == (*shape[:-1], 3, 3, 6, 9)
        for place in itertools.product(*map(range, (*shape[:-1], 3))):
            own = (*place[:-1], min(place[-1], shape[-1] - 1))
            alone = Pose(pose.values[own][None], pose.chain)
            expected = warp(images[place[-1]][None], alone, fill=fill)[0]
            torch.testing.assert_close(moved[place], expected, rtol=0, atol=1e-12)

    def test_warp_all_is_every_pose_on_every_image(self) -> None:
        images, poses = noise(2, 3, 5, 5), draw(MIXED, 4)
        assert warp_all(images, poses).equal(warp(images, poses[:, None]))

    def test_images_and_poses_are_left_as_they_are(self) -> None:
        images, pose = noise(2, 3, 5, 5), draw(MIXED, 2)
        before = images.clone(), pose.values.clone()
        warp(images, pose, fill=ORANGE, canvas=1)
        assert images.equal(before[0])
        assert pose.values.equal(before[1])


GROUPS = [
    *("shift", "rotate", "zoom", "stretch", "perspective"),
    *("shift rotate", "shift zoom", "shift stretch", "shift rotate zoom", "shift zoom rotate"),
    *("rotate zoom", "zoom rotate"),
]
NO_GROUPS = [
    *("shear", "blur", "shift shear", "shift perspective", "rotate shift", "shift rotate stretch"),
    *("brightness contrast", "shift brightness", "rotate stretch", ALL_SPATIAL),
]
SIZE = (30, 50)


class TestGroups:
    @pytest.mark.parametrize("text", GROUPS)
    def test_compose_and_inverse_are_those_of_matrices(self, text: str) -> None:
        one, two = draw(text, 4, seed=1), draw(text, 4, seed=2)
        first, second = (pose.chain.matrix(pose.values, SIZE).numpy() for pose in (one, two))
        both = one.compose(then=two)
        np.testing.assert_allclose(both.chain.matrix(both.values, SIZE), second @ first, atol=1e-12)
        undoes = one.inverse()
        inverse = undoes.chain.matrix(undoes.values, SIZE)
        np.testing.assert_allclose(inverse, np.linalg.inv(first), atol=1e-12)
        nothing = one.compose(then=undoes).values
        torch.testing.assert_close(nothing, torch.zeros_like(nothing), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("text", NO_GROUPS)
    def test_what_is_no_group_says_so(self, text: str) -> None:
        pose = draw(text, 2)
        names = " ".join(pose.chain.names)
        for ask in (pose.inverse, lambda: pose.compose(then=pose)):
            with pytest.raises(ValueError, match=f"two poses of {names} are not one pose of it"):
                ask()

    def test_poses_of_different_chains_do_not_compose(self) -> None:
        with pytest.raises(ValueError, match="do not compose"):
            draw("rotate", 1).compose(then=draw("zoom", 1))

    def test_limits_may_differ(self) -> None:
        both = draw("rotate(10)", 2).compose(then=draw("rotate(-1..5)", 2))
        assert str(both.chain) == "rotate(10)"

    def test_a_covering_space_holds_the_way_from_any_pose_to_any_other(self) -> None:
        members = Space.of("shift(10%) zoom(0.5..2)").pose(
            dx=[0.0, 2.0, -1.0], zoom=[0.0, 0.1, 0.3]
        )
        space = Space.covering([members])
        assert [axis.unit for axis in space.axes] == ["px", "px", "factor"]
        between = members.inverse()[:, None].compose(then=members[None, :])
        largest = between.values.abs().amax((0, 1))
        assert [high for _, high in space.limits] == pytest.approx(largest.tolist(), abs=1e-6)
        assert space.limits[2] == pytest.approx((-0.3, 0.3))


numbers = st.floats(-5, 5).map(lambda value: round(value, 3))


@given(st.lists(st.lists(numbers, min_size=9, max_size=9), min_size=1, max_size=4))
def test_the_inverse_of_matrices_is_numpy_s(rows: list[list[float]]) -> None:
    matrices = np.array(rows).reshape(-1, 3, 3) + 20 * np.eye(3)
    found = matrix_inverse(torch.from_numpy(matrices))
    np.testing.assert_allclose(found, np.linalg.inv(matrices), rtol=1e-9, atol=1e-12)


def test_the_inverse_of_whole_shifts_and_quarter_turns_is_exact() -> None:
    turn = chain_of("shift rotate").matrix(torch.tensor([[3.0, -7.0, 90.0]]), SIZE)
    assert matrix_product(turn, matrix_inverse(turn)).equal(torch.eye(3)[None])


class TestErrors:
    def test_a_family_stands_once(self) -> None:
        with pytest.raises(ValueError, match="shift stands twice; name each family once"):
            Chain((Shift(), Shift()))

    def test_at_least_one_family(self) -> None:
        with pytest.raises(ValueError, match="a space without a family; name at least one"):
            Chain(())

    def test_a_chain_of_pixels_has_no_matrix(self) -> None:
        chain = chain_of("shift brightness hue")
        with pytest.raises(ValueError, match="brightness, hue moves no points: there is no matrix"):
            chain.matrix(torch.zeros(1, 4), SIZE)

    def test_axes_of_all_families_are_told_apart(self) -> None:
        chain = Chain(tuple(kind() for kind in FAMILIES.values()))
        assert len(chain.column_of) == len(chain.axes)
