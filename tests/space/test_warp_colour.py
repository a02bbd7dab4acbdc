"""A colour as the fill: against the references, as if images went on in that colour."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_warp import INTERPOLATIONS, POSES
from torch import Tensor

from geometry_reference import loop_warp, scipy_warp
from random_inputs import noise, poses_of
from upright import Pose, evaluate, warp, warp_all
from upright.warp import Interpolation

ORANGE, ORANGE_LEVELS = "#ff8000", (1.0, 128 / 255, 0.0)
GREY, GREY_LEVEL = "#7f7f7f", 127 / 255
SIZES = [(1, 5), (6, 3), (8, 8), (17, 40)]

every_interpolation = pytest.mark.parametrize("interpolation", INTERPOLATIONS)


class TestReferences:
    @pytest.mark.parametrize(("height", "width"), SIZES)
    def test_a_colour_agrees_with_scipy(self, height: int, width: int) -> None:
        images = noise(len(POSES), 3, height, width)
        moved = warp(images, poses_of(POSES), fill=ORANGE)
        for image, result, pose in zip(images, moved, POSES, strict=True):
            expected = scipy_warp(image.numpy(), *pose, colour=ORANGE_LEVELS)
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("channels", [1, 2, 3, 5])
    def test_a_grey_agrees_with_scipy_for_any_number_of_channels(self, channels: int) -> None:
        images = noise(2, channels, 5, 7)
        moved = warp_all(images, poses_of(POSES), fill=GREY)
        for pose, copies in zip(POSES, moved, strict=True):
            for image, result in zip(images, copies, strict=True):
                expected = scipy_warp(image.numpy(), *pose, colour=[GREY_LEVEL] * channels)
                np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
    def test_a_colour_agrees_with_a_loop_over_pixels(self, interpolation: Interpolation) -> None:
        images = noise(len(POSES), 3, 4, 7)
        moved = warp(images, poses_of(POSES), fill=ORANGE, interpolation=interpolation)
        for image, result, pose in zip(images, moved, POSES, strict=True):
            for channel, level in enumerate(ORANGE_LEVELS):
                plain = image[channel].tolist()
                expected = loop_warp(plain, *pose, "black", interpolation, level)
                np.testing.assert_allclose(result[channel].numpy(), expected, rtol=0, atol=1e-9)

    def test_twice_is_a_turn_and_then_a_shift_on_a_canvas_with_room_for_both(self) -> None:
        images, room = noise(len(POSES), 1, 8, 6), 40
        moved = warp(images, poses_of(POSES), fill=GREY, interpolation="bilinear-twice")
        for image, result, (dx, dy, angle) in zip(images, moved, POSES, strict=True):
            around = np.pad(
                image.numpy(), [(0, 0), (room, room), (room, room)], constant_values=GREY_LEVEL
            )
            turned = scipy_warp(around, 0, 0, angle, colour=[GREY_LEVEL])
            shifted = scipy_warp(turned, dx, dy, 0, colour=[GREY_LEVEL])
            expected = shifted[:, room:-room, room:-room]
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)


class TestExactness:
    @every_interpolation
    @pytest.mark.parametrize(
        "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
    )
    def test_zero_pose_is_the_identity_bit_for_bit(
        self, dtype: torch.dtype, interpolation: Interpolation
    ) -> None:
        for height, width in [(1, 1), (4, 7), (28, 28), (31, 33), (100, 37)]:
            images = noise(2, 3, height, width, dtype=dtype)
            for pose in (Pose.zeros(1), Pose.zeros(2)):
                moved = warp(images, pose, fill=ORANGE, interpolation=interpolation)
                assert moved.dtype == dtype
                assert torch.equal(moved, images), (height, width)

    @every_interpolation
    def test_whole_pixel_shifts_uncover_the_very_bytes(self, interpolation: Interpolation) -> None:
        pixels = (255 * noise(1, 3, 9, 14)).byte()
        red, green, blue = (torch.full((1, 1, 9, 5), byte) for byte in (255, 128, 0))
        expected = torch.cat((torch.cat((red, green, blue), 1).byte(), pixels[..., :-5]), -1)
        moved = warp(pixels.float() / 255, Pose.of(5), fill=ORANGE, interpolation=interpolation)
        assert torch.equal(moved, expected.float() / 255)

    def test_black_as_a_colour_is_black(self) -> None:
        images, poses = noise(len(POSES), 3, 5, 8), poses_of(POSES)
        assert torch.equal(warp(images, poses, fill="#000000"), warp(images, poses))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_precision_is_rounded_once_at_the_end(self, dtype: torch.dtype) -> None:
        images, pose = noise(3, 3, 16, 16, dtype=dtype), Pose.of([0.3, 1.7, -2.2], 1.1, 13.0)
        exact = warp(images.float(), pose, fill=ORANGE)
        assert torch.equal(warp(images, pose, fill=ORANGE), exact.to(dtype))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "bilinear-twice"])
def test_gradcheck_in_images_and_pose(interpolation: Interpolation) -> None:
    images = noise(2, 3, 3, 4).requires_grad_()
    poses = torch.tensor([[0.31, -0.62, 11.0], [-1.43, 0.27, 97.0]], dtype=torch.float64)

    def move(images: Tensor, stacked: Tensor) -> Tensor:
        return warp(images, Pose(stacked), fill=ORANGE, interpolation=interpolation)

    assert torch.autograd.gradcheck(move, (images, poses.requires_grad_()))


def test_axes_in_front_move_every_image_several_times() -> None:
    images, poses = noise(4, 3, 5, 8), Pose(4 * noise(2, 3, 4, 3, seed=1))
    moved = warp(images, poses, fill=ORANGE)
    assert moved.shape == (2, 3, 4, 3, 5, 8)
    for i in range(2):
        for k in range(3):
            expected = warp(images, poses[i, k], fill=ORANGE)
            torch.testing.assert_close(moved[i, k], expected, rtol=0, atol=1e-12)


def test_a_canvas_has_the_colour_of_the_fill() -> None:
    image = noise(1, 3, 7, 10)
    padded = torch.stack(
        [F.pad(image[0, i], [5] * 4, value=level) for i, level in enumerate(ORANGE_LEVELS)]
    )
    moved = warp(image, poses_of(POSES[1:2]), fill=ORANGE, canvas=5)[0].numpy()
    expected = scipy_warp(padded.numpy(), *POSES[1], colour=ORANGE_LEVELS)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-9)
    unmoved = warp(image, Pose.zeros(1), fill=ORANGE, canvas=5)
    assert torch.equal(unmoved[0], padded)


@pytest.mark.parametrize("fill", ["#7f7f7", "#7f7f7g", "7f7f7f", "#7f7f7f\n", "grey", (0, 0, 0)])
def test_what_is_no_colour_is_refused(fill: str) -> None:
    with pytest.raises(ValueError, match=r"nor a colour such as '#7f7f7f'"):
        warp(noise(1, 3, 4, 4), Pose.zeros(1), fill=fill)


def test_a_colour_on_other_than_three_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="three channels, but the images have 1; give a grey"):
        warp(noise(1, 1, 4, 4), Pose.zeros(1), fill=ORANGE)


def test_an_evaluation_shows_the_model_images_in_the_colour_of_the_fill() -> None:
    """A model that counts the pixels of the colour sees none as it is, and some when turned."""
    white, grey = torch.ones(2, 3, 8, 8), torch.full((3,), GREY_LEVEL)

    def sees_grey(images: Tensor) -> Tensor:
        share = (images == grey[:, None, None]).all(1).float().mean((1, 2))
        return 9 * torch.stack((1 - 2 * share, share), 1)

    data = white, torch.zeros(2, dtype=torch.int64)
    found = evaluate(sees_grey, data, attacks=["grid-3x3x1"], fill=GREY)
    assert found.natural_accuracy == 1
    # The farthest shift, by 3 px both ways, leaves 25 of 64 pixels: the share of grey is above 1/3.
    assert found.attacks["grid-3x3x1"].accuracy == 0
    black = evaluate(sees_grey, data, attacks=["grid-3x3x1"])
    assert black.attacks["grid-3x3x1"].accuracy == 1
    framed = evaluate(sees_grey, data, attacks=[], fill=GREY, canvas=4)
    assert framed.natural_accuracy == 0  # three quarters of it are canvas
