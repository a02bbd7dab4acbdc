"""Every family: the identity, independent references, gradients, directions, and what it claims."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from geometry_reference import PIXELS, SOURCES, loop_resample, scipy_resample, undone
from random_inputs import noise
from upright import Pose, RegularizedLoss, Space, evaluate, warp
from upright.families import FAMILIES, Axis, Family, OfPixels, Spatial, family
from upright.testing import check_family
from upright.transforms import Random
from upright.warp import FILLS, Fill, Interpolation

SPATIAL = [name for name, kind in FAMILIES.items() if issubclass(kind, Spatial)]
OF_PIXELS = [name for name, kind in FAMILIES.items() if issubclass(kind, OfPixels)]
SIZES = [(1, 1), (5, 7), (32, 32), (33, 20), (224, 100)]

every_family = pytest.mark.parametrize("name", FAMILIES)
every_spatial = pytest.mark.parametrize("name", SPATIAL)
every_of_pixels = pytest.mark.parametrize("name", OF_PIXELS)


def draws(name: str, count: int = 4) -> Pose:
    """Poses from the inside of a family's usual limits, and one at each end of all of them."""
    space = Space.of(name)
    drawn = space.sample(count, generator=torch.Generator().manual_seed(1)).values.double()
    ends = torch.tensor(space.limits, dtype=torch.float64).T
    return Pose(torch.cat((drawn, ends)), space.chain)


def channels_of(name: str) -> tuple[int, ...]:
    return (1, 3) if name in ("saturation", "hue") else (1, 3, 4)


class TestIdentity:
    @every_family
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize(
        "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
    )
    def test_zero_is_the_identity_bit_for_bit(
        self, name: str, size: tuple[int, int], dtype: torch.dtype
    ) -> None:
        space = Space.of(name)
        for channels in channels_of(name):
            images = noise(2, channels, *size, dtype=dtype)
            images[0, 0, 0, 0], images[1, -1, -1, -1] = 0, 1
            for shape in ((1,), (2,)):
                moved = warp(images, space.zeros(*shape))
                assert moved.dtype == dtype
                assert torch.equal(moved, images)
            assert torch.equal(warp(images, space.zeros(3, 1)), images.expand(3, *images.shape))


@every_family
@pytest.mark.parametrize("size", [(5, 7), (33, 20)])
def test_keeps_the_rules_of_families(name: str, size: tuple[int, int]) -> None:
    check_family(name, size=size)


@every_family
def test_each_axis_changes_images_by_far_more_than_rounding(name: str) -> None:
    images = noise(1, 3, 16, 16)
    for place in range(len(FAMILIES[name].axes)):
        pose = Space.of(name).zeros(1)
        pose.values[..., place] = FAMILIES[name].axes[place].high
        assert (warp(images, pose) - images).abs().max() > 0.05


class TestReferences:
    @every_spatial
    @pytest.mark.parametrize("fill", FILLS)
    @pytest.mark.parametrize("size", [(1, 1), (5, 7), (17, 40), (32, 32)])
    def test_where_points_go_agrees_with_scipy(
        self, name: str, fill: Any, size: tuple[int, int]
    ) -> None:
        assert name in SOURCES, f"write down in reference.py where a point of {name} comes from"
        poses = draws(name)
        images = noise(len(poses), 2, *size)
        moved = warp(images, poses, fill=fill)
        for image, result, values in zip(images, moved, poses.values.tolist(), strict=True):
            source = undone([(name, values)], size)
            expected = scipy_resample(image.numpy(), source, fill)
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)

    @every_spatial
    @pytest.mark.parametrize("fill", FILLS)
    @pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
    def test_every_interpolation_agrees_with_a_loop_over_pixels(
        self, name: str, fill: Any, interpolation: Interpolation
    ) -> None:
        poses = draws(name, 2)
        images = noise(len(poses), 1, 6, 9)
        moved = warp(images, poses, fill=fill, interpolation=interpolation)
        for image, result, values in zip(images, moved, poses.values.tolist(), strict=True):
            source = undone([(name, values)], (6, 9))
            expected = loop_resample(image[0].tolist(), source, fill, interpolation)
            np.testing.assert_allclose(result[0].numpy(), expected, rtol=0, atol=1e-9)

    @every_of_pixels
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("size", [(1, 1), (5, 7), (17, 40)])
    def test_what_becomes_of_pixels_agrees_with_a_formula(
        self, name: str, channels: int, size: tuple[int, int]
    ) -> None:
        assert name in PIXELS, f"write down in reference.py what becomes of pixels by {name}"
        poses = draws(name)
        if name == "blur":
            poses.values.clamp_(min=0.05)  # scipy divides by it
        images = noise(len(poses), channels, *size)
        moved = warp(images, poses)
        in_float = warp(images.float(), poses.to(dtype=torch.float32))
        for place, (value,) in enumerate(poses.values.tolist()):
            grey = channels == 1 and name in ("hue", "saturation")
            image = images[place].numpy()
            expected = image if grey else PIXELS[name](image, value)
            np.testing.assert_allclose(moved[place].numpy(), expected, rtol=0, atol=1e-12)
            np.testing.assert_allclose(in_float[place].numpy(), expected, rtol=0, atol=2e-6)

    @pytest.mark.parametrize("high", [0.1, 0.5, 2.5])
    def test_a_blur_is_cut_off_at_three_times_its_limit(self, high: float) -> None:
        """A single bright pixel reaches just as far, however little of it is blurred."""
        pose = Space.of(f"blur({high}px)").pose(blur=torch.tensor([0.9 * high]).double())
        image = torch.zeros(1, 1, 1, 41, dtype=torch.float64)
        image[..., 20] = 1
        reached = warp(image, pose)[0, 0, 0].nonzero().flatten()
        reach = max(1, int(np.ceil(3 * high)))
        assert reached.tolist() == list(range(20 - reach, 21 + reach))


class TestGradients:
    @every_family
    @pytest.mark.parametrize("channels", [1, 3])
    def test_gradcheck_in_images_and_pose(self, name: str, channels: int) -> None:
        # Half way to the limits of poses and of pixels: no kink of a clamp is near.
        images = (0.3 + 0.4 * noise(2, channels, 4, 5)).requires_grad_()
        values = (0.5 * draws(name).values[:2] + 0.01).requires_grad_()
        chain = Space.of(name).chain

        def change(images: Tensor, values: Tensor) -> Tensor:
            return warp(images, Pose(values, chain))

        assert torch.autograd.gradcheck(change, (images, values))

    @every_family
    def test_gradcheck_of_poses_that_images_share(self, name: str) -> None:
        images = (0.3 + 0.4 * noise(2, 3, 3, 4)).requires_grad_()
        values = (0.5 * draws(name).values[:3, None] + 0.01).requires_grad_()
        chain = Space.of(name).chain

        def change(images: Tensor, values: Tensor) -> Tensor:
            return warp(images, Pose(values, chain))

        assert torch.autograd.gradcheck(change, (images, values))

    @every_family
    @pytest.mark.parametrize("chain", ["{}", "{} shift(2px)", "shift(2px) {}"])
    def test_slopes_are_finite_at_black_and_white_and_at_the_zero_pose(
        self, name: str, chain: str
    ) -> None:
        if name == "shift":
            chain = "{}"
        space = Space.of(chain.format(name))
        images = torch.zeros(1, 3, 8, 8)
        images[..., 4:] = 1
        images.requires_grad_()
        grid = space.grid((3,) * len(space.axes))
        values = torch.cat((grid.values, space.zeros(1).values)).requires_grad_()
        warp(images, Pose(values, space.chain)[:, None]).square().sum().backward()
        assert values.grad is not None
        assert values.grad.isfinite().all()
        assert images.grad is not None
        assert images.grad.isfinite().all()


class TestDirections:
    """As each family's file and the page on families say."""

    def bright(self, height: int, width: int, *pixels: tuple[int, int]) -> Tensor:
        image = torch.zeros(1, 1, height, width)
        for row, column in pixels:
            image[0, 0, row, column] = 1
        return image

    def centre(self, image: Tensor) -> tuple[float, float]:
        """Of brightness: x to the right and y down, from the middle of the image."""
        mass = image[0, 0] / image.sum()
        y = torch.arange(mass.shape[0]) - (mass.shape[0] - 1) / 2
        x = torch.arange(mass.shape[1]) - (mass.shape[1] - 1) / 2
        return float((mass.sum(0) * x).sum()), float((mass.sum(1) * y).sum())

    def moved(self, text: str, x: int, y: int, **columns: float) -> tuple[float, float]:
        """Where a bright pixel at x, y goes."""
        image = self.bright(41, 41, (20 + y, 20 + x))
        return self.centre(warp(image, Space.of(text).pose(**columns)))

    def test_positive_dx_is_right_and_positive_dy_is_down(self) -> None:
        assert self.moved("shift", 0, 0, dx=2.0, dy=1.0) == (2, 1)

    def test_positive_angle_is_counter_clockwise(self) -> None:
        assert self.moved("rotate", 10, 0, angle=90.0) == (0, -10)

    def test_zoom_above_1_makes_content_larger(self) -> None:
        x, y = self.moved("zoom", 8, -4, zoom=float(np.log(2)))
        assert (x, y) == pytest.approx((16, -8), abs=0.1)

    def test_stretch_x_is_of_the_width_and_stretch_y_of_the_height(self) -> None:
        assert self.moved("stretch", 8, -4, stretch_x=np.log(2)) == pytest.approx((16, -4), abs=0.1)
        assert self.moved("stretch", 8, -4, stretch_y=np.log(2)) == pytest.approx((8, -8), abs=0.1)

    def test_positive_shear_x_leans_the_top_to_the_right_by_its_angle(self) -> None:
        top = self.moved("shear", 0, -10, shear_x=26.565)
        assert top == pytest.approx((5, -10), abs=0.1)
        assert self.moved("shear", 10, 0, shear_x=20.0) == pytest.approx((10, 0), abs=0.1)

    def test_positive_shear_y_lifts_the_right_side_by_its_angle(self) -> None:
        right = self.moved("shear", 10, 0, shear_y=26.565)
        assert right == pytest.approx((10, -5), abs=0.1)
        assert self.moved("shear", 0, 10, shear_y=20.0) == pytest.approx((0, 10), abs=0.1)

    def test_positive_tilt_takes_the_right_or_lower_edge_farther_away(self) -> None:
        # Half way to the edge, whatever is there is nearer to the centre by 1 + tilt / 2.
        half = 10 / (1 + 0.2 * 10 / 20.5)
        assert self.moved("perspective", 10, 0, tilt_x=0.2) == pytest.approx((half, 0), abs=0.2)
        assert self.moved("perspective", 0, 10, tilt_y=0.2) == pytest.approx((0, half), abs=0.2)
        other = self.moved("perspective", -10, 0, tilt_x=0.2)[0]
        assert other == pytest.approx(-10 / (1 - 0.2 * 10 / 20.5), abs=0.2)

    def test_an_edge_shrinks_by_1_plus_tilt(self) -> None:
        pose = Space.of("perspective").pose(tilt_x=torch.tensor([0.2]).double())
        matrix = pose.chain.matrix(pose.values, (30, 50))[0]
        corner = matrix @ torch.tensor([25.0, 15.0, 1.0], dtype=torch.float64)
        assert (corner[:2] / corner[2]).tolist() == pytest.approx([25 / 1.2, 15 / 1.2])

    def test_brightness_above_0_is_lighter(self) -> None:
        grey = torch.full((1, 3, 2, 2), 0.5)
        lighter = warp(grey, Space.of("brightness").pose(brightness=0.2))
        torch.testing.assert_close(lighter, grey + 0.2)

    def test_contrast_above_1_is_away_from_the_mean(self) -> None:
        image = torch.tensor([0.4, 0.6]).view(1, 1, 1, 2)
        stronger = warp(image, Space.of("contrast").pose(contrast=float(np.log(2))))
        torch.testing.assert_close(stronger.flatten(), torch.tensor([0.3, 0.7]))

    def test_gamma_above_1_is_darker_in_the_mid_tones(self) -> None:
        image = torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3)
        darker = warp(image, Space.of("gamma").pose(gamma=float(np.log(2))))
        torch.testing.assert_close(darker.flatten(), torch.tensor([0.0, 0.25, 1.0]))

    def test_saturation_above_1_is_away_from_grey(self) -> None:
        image = torch.tensor([0.6, 0.5, 0.4]).view(1, 3, 1, 1)
        stronger = warp(image, Space.of("saturation").pose(saturation=float(np.log(2))))
        torch.testing.assert_close(stronger.flatten(), torch.tensor([0.7, 0.5, 0.3]))

    def test_positive_hue_goes_from_red_over_green_to_blue(self) -> None:
        red, green, blue = torch.eye(3).view(3, 1, 3, 1, 1)
        hue = Space.of("hue")
        torch.testing.assert_close(warp(red, hue.pose(hue=120.0)), green)
        torch.testing.assert_close(warp(red, hue.pose(hue=240.0)), blue)

    def test_blur_spreads_and_darkens_nothing(self) -> None:
        image = self.bright(21, 21, (10, 10))
        blurred = warp(image, Space.of("blur").pose(blur=1.0))
        assert blurred.sum().item() == pytest.approx(1)
        assert blurred.max() < 0.2


class TestClaims:
    """What a class says of itself, on which chains, poses and kernels rely."""

    @every_spatial
    def test_the_matrix_says_where_points_go_and_its_inverse_where_they_come_from(
        self, name: str
    ) -> None:
        poses, size, kind = draws(name), (30, 50), FAMILIES[name]()
        assert isinstance(kind, Spatial)
        x, y = (12.0, -7.0)
        for values, there, back in zip(
            poses.values.tolist(),
            kind.matrix(poses.values, size),
            kind.inverse_matrix(poses.values, size),
            strict=True,
        ):
            torch.testing.assert_close(there @ back, torch.eye(3).double())
            point = back @ torch.tensor([x, y, 1.0], dtype=torch.float64)
            expected = SOURCES[name](x, y, values, size)
            assert (point[:2] / point[2]).tolist() == pytest.approx(expected)

    @every_spatial
    def test_only_projective_families_have_another_last_row(self, name: str) -> None:
        kind, values = FAMILIES[name](), draws(name).values
        assert isinstance(kind, Spatial)
        affine = torch.tensor([0.0, 0.0, 1.0]).double().expand(len(values), 3)
        assert kind.matrix(values, (30, 50))[:, 2].equal(affine) is not kind.projective

    @every_family
    def test_poses_of_additive_families_add_up(self, name: str) -> None:
        kind = FAMILIES[name]()
        first, second = 0.3 * draws(name).values, 0.2 * draws(name).values.flip(0)
        if not kind.additive:
            with pytest.raises(ValueError, match=f"two poses of {name} are not one pose of it"):
                Pose(first, Space.of(name).chain).inverse()
            return
        if isinstance(kind, Spatial):
            product = kind.matrix(second, (30, 50)) @ kind.matrix(first, (30, 50))
            torch.testing.assert_close(kind.matrix(first + second, (30, 50)), product)
            return
        images, chain = 0.4 + 0.2 * noise(len(first), 3, 5, 5), Space.of(name).chain
        twice = warp(warp(images, Pose(first, chain)), Pose(second, chain))
        once = warp(images, Pose(first, chain).compose(then=Pose(second, chain)))
        torch.testing.assert_close(twice, once, rtol=0, atol=1e-12)

    @every_family
    def test_its_text_is_read_as_itself(self, name: str) -> None:
        kind = FAMILIES[name]()
        (again,) = Space.of(str(kind)).chain.families
        assert again == kind
        assert hash(again) == hash(kind)
        assert Space.of(name).chain.families == (kind,)


@pytest.mark.parametrize("name", ["saturation", "hue"])
def test_colours_of_grey_images_stay_and_of_four_channels_are_refused(name: str) -> None:
    poses = draws(name)
    grey = noise(len(poses), 1, 5, 5)
    assert warp(grey, poses).equal(grey)
    with pytest.raises(ValueError, match=f"{name} needs images of one channel or of three"):
        warp(noise(len(poses), 4, 5, 5), poses)


@pytest.mark.parametrize("limits", ["45", "50, 40", "90, 1", "1, 91", "-60..10"])
def test_a_shear_that_leaves_no_image_is_refused(limits: str) -> None:
    with pytest.raises(ValueError, match="shear by so much leaves no image: both angles"):
        Space.of(f"shear({limits})")


LIGHT = """
from upright.families import Axis, OfPixels, family

@family
class Light(OfPixels):
    name = "light"
    axes = {axes}

    def apply(self, images, values):
        return images * (1 - values.sum(-1) / 4)
"""


class TestOfOnesOwn:
    @pytest.fixture(autouse=True)
    def _known_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))

    def made(self, called: str, *axes: Axis) -> type[Family]:
        class Own(OfPixels):
            name: ClassVar[str] = called

            def apply(self, images: Tensor, values: Tensor) -> Tensor:
                return images * (1 - values[..., 0])

        Own.axes = axes
        return Own

    def test_one_decorator_makes_it_known(self) -> None:
        own = family(self.made("dim", Axis("dim", low=0.0, high=0.5)))
        space = Space.of("shift(2px) dim(0..0.25)")
        assert isinstance(space.chain.families[1], own)
        assert space.limits == ((-2, 2), (-2, 2), (0, 0.25))
        images = noise(2, 3, 4, 4)
        torch.testing.assert_close(warp(images, space.pose(dim=0.25)), 0.75 * images)

    def test_one_file_is_all_that_a_new_family_takes_and_one_a_new_axis(
        self, tmp_path: Path
    ) -> None:
        """From the file to attacks, objectives, transforms and back to the text of a record."""
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 4)).eval()
        data = noise(4, 3, 8, 8, dtype=torch.float32), torch.arange(4)
        for axes, names in (
            ('(Axis("noon"),)', ["noon"]),
            ('(Axis("noon"), Axis("dusk", low=0.0))', ["noon", "dusk"]),
        ):
            file = tmp_path / "light.py"
            file.write_text(LIGHT.format(axes=axes))
            runpy.run_path(str(file))
            text, grid = "light(0..0.5) rotate(10)", "grid-" + "x".join(["3"] * (len(names) + 1))
            found = evaluate(model, data, space=text, attacks=[grid, "wo-3", "s-pgd"])
            chain = found.attacks[grid].worst_pose.chain
            assert list(chain.column_of) == [*names, "angle"]
            assert Space.of(str(chain)) == Space.of(text)
            RegularizedLoss("KL(rob, S-PGD)", text)(model, *data).total.backward()
            assert Random(text)(data[0]).shape == data[0].shape

    def test_the_same_file_may_be_loaded_twice(self) -> None:
        family(self.made("dim", Axis("dim")))
        again = family(self.made("dim", Axis("dim")))
        assert FAMILIES["dim"] is again

    def test_names_that_others_have_are_refused(self) -> None:
        with pytest.raises(ValueError, match="another family has an axis called dx, zoom"):
            family(self.made("dim", Axis("dx"), Axis("zoom"), Axis("dim")))
        with pytest.raises(ValueError, match="another family is called 'zoom'"):
            family(self.made("zoom", Axis("dim")))

    @pytest.mark.parametrize("name", ["", "Dim", "two words", "dim(3)", "1st"])
    def test_names_that_no_text_can_hold_are_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="is no name of a family: take small letters"):
            family(self.made(name, Axis("dim")))

    def test_axes_are_not_called_as_other_things_of_a_pose(self) -> None:
        for name in ("values", *(name for name in dir(Pose) if not name.startswith("_"))):
            with pytest.raises(ValueError, match=f"poses have something else called {name}"):
                family(self.made("dim", Axis(name)))


@pytest.mark.parametrize("fill", ["border", "#ff8000"])
def test_fills_and_interpolations_do_not_matter_where_nothing_moves(fill: Fill) -> None:
    images, pose = noise(2, 3, 5, 5), Space.of("gamma").pose(gamma=[0.1, 0.2])
    assert warp(images, pose, fill=fill, interpolation="nearest").equal(warp(images, pose))
