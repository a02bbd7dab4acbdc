"""The warp against two independent references, its exactness, its gradients and its batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from geometry_reference import loop_warp, scipy_warp
from random_inputs import noise, poses_of
from upright import Pose, warp, warp_all
from upright.warp import FILLS, Fill, Interpolation

INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)
NUMPY_MODES: dict[Fill, Any] = {"black": "constant", "reflection": "symmetric", "border": "edge"}
SIZES = [(1, 1), (1, 5), (4, 7), (6, 3), (8, 8), (9, 9)]
POSES = [(0.3, -0.7, 0.0), (1.6, 2.2, 30.0), (-2.9, 0.4, -17.3), (11.3, -9.7, 203.0), (0, 0, 45.1)]

every_fill = pytest.mark.parametrize("fill", FILLS)
every_interpolation = pytest.mark.parametrize("interpolation", INTERPOLATIONS)


class TestReferences:
    @every_fill
    @pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
    @pytest.mark.parametrize(("height", "width"), SIZES)
    def test_agrees_with_a_loop_over_pixels(
        self, height: int, width: int, fill: Fill, interpolation: Interpolation
    ) -> None:
        images = noise(len(POSES), 1, height, width)
        moved = warp(images, poses_of(POSES), fill=fill, interpolation=interpolation)
        for image, result, pose in zip(images, moved, POSES, strict=True):
            expected = loop_warp(image[0].tolist(), *pose, fill, interpolation)
            np.testing.assert_allclose(result[0].numpy(), expected, rtol=0, atol=1e-9)

    @every_fill
    @pytest.mark.parametrize(("height", "width"), [*SIZES, (32, 32), (17, 40)])
    def test_agrees_with_scipy(self, height: int, width: int, fill: Fill) -> None:
        images = noise(len(POSES), 2, height, width)
        moved = warp(images, poses_of(POSES), fill=fill)
        for image, result, pose in zip(images, moved, POSES, strict=True):
            expected = scipy_warp(image.numpy(), *pose, fill)
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)

    @every_fill
    @pytest.mark.parametrize(("height", "width"), [*SIZES, (32, 32)])
    def test_twice_is_a_turn_and_then_a_shift_on_a_canvas_with_room_for_both(
        self, height: int, width: int, fill: Fill
    ) -> None:
        images, room = noise(len(POSES), 1, height, width), 40
        moved = warp(images, poses_of(POSES), fill=fill, interpolation="bilinear-twice")
        for image, result, (dx, dy, angle) in zip(images, moved, POSES, strict=True):
            around = np.pad(image.numpy(), [(0, 0), (room, room), (room, room)], NUMPY_MODES[fill])
            shifted = scipy_warp(scipy_warp(around, 0, 0, angle, fill), dx, dy, 0, fill)
            expected = shifted[:, room:-room, room:-room]
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)

    @every_fill
    def test_float32_is_within_its_rounding_of_the_reference(self, fill: Fill) -> None:
        images = noise(len(POSES), 3, 32, 32)
        moved = warp(images.float(), poses_of(POSES).to(dtype=torch.float32), fill=fill)
        for image, result, pose in zip(images, moved, POSES, strict=True):
            expected = scipy_warp(image.numpy(), *pose, fill)
            np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=2e-5)


class TestExactness:
    @every_fill
    @every_interpolation
    @pytest.mark.parametrize(
        "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
    )
    def test_zero_pose_is_the_identity_bit_for_bit(
        self, dtype: torch.dtype, fill: Fill, interpolation: Interpolation
    ) -> None:
        for height, width in [*SIZES, (2, 3), (28, 28), (31, 33), (64, 17), (100, 37), (224, 224)]:
            images = noise(2, 1, height, width, dtype=dtype)
            for pose in (Pose.zeros(1), Pose.zeros(2)):
                moved = warp(images, pose, fill=fill, interpolation=interpolation)
                assert moved.dtype == dtype
                assert torch.equal(moved, images), (height, width)

    @every_fill
    @every_interpolation
    @pytest.mark.parametrize(("height", "width"), [(6, 6), (9, 14), (33, 31)])
    def test_whole_pixel_shifts_are_exact(
        self, height: int, width: int, fill: Fill, interpolation: Interpolation
    ) -> None:
        images = noise(1, 2, height, width, dtype=torch.float32)
        around = np.pad(images.numpy(), [(0, 0), (0, 0), (5, 5), (5, 5)], NUMPY_MODES[fill])
        for dx, dy in [(1, 0), (0, -1), (3, -2), (-5, 4)]:
            moved = warp(images, Pose.of(dx, dy), fill=fill, interpolation=interpolation)
            expected = around[..., 5 - dy : 5 - dy + height, 5 - dx : 5 - dx + width]
            assert np.array_equal(moved.numpy(), expected)

    @every_fill
    @every_interpolation
    @pytest.mark.parametrize("size", [1, 2, 5, 8, 33])
    def test_turns_of_a_square_by_90_degrees_are_exact(
        self, size: int, fill: Fill, interpolation: Interpolation
    ) -> None:
        images = noise(2, 1, size, size, dtype=torch.float32)
        for turns in (-5, -1, 1, 2, 3, 4):
            pose = Pose.of(angle=90 * turns)
            moved = warp(images, pose, fill=fill, interpolation=interpolation)
            assert torch.equal(moved, torch.rot90(images, turns, (2, 3)))

    def test_half_a_turn_of_a_non_square_image_is_exact(self) -> None:
        images = noise(1, 2, 5, 12, dtype=torch.float32)
        assert torch.equal(warp(images, Pose.of(angle=180)), images.flip(2, 3))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @every_interpolation
    def test_half_precision_is_rounded_once_at_the_end(
        self, dtype: torch.dtype, interpolation: Interpolation
    ) -> None:
        images, pose = noise(3, 1, 32, 32, dtype=dtype), Pose.of([0.3, 1.7, -2.2], 1.1, 13.0)
        exact = warp(images.float(), pose, interpolation=interpolation)
        assert torch.equal(warp(images, pose, interpolation=interpolation), exact.to(dtype))


class TestGradients:
    @every_fill
    @pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "bilinear-twice"])
    def test_gradcheck_in_images_and_pose(self, fill: Fill, interpolation: Interpolation) -> None:
        images = noise(2, 1, 3, 4).requires_grad_()
        poses = torch.tensor([[0.31, -0.62, 11.0], [-1.43, 0.27, 97.0]], dtype=torch.float64)

        def move(images: Tensor, stacked: Tensor) -> Tensor:
            return warp(images, Pose(stacked), fill=fill, interpolation=interpolation)

        assert torch.autograd.gradcheck(move, (images, poses.requires_grad_()))

    @pytest.mark.parametrize("interpolation", INTERPOLATIONS)
    def test_gradcheck_of_many_poses_for_each_image_on_a_canvas(
        self, interpolation: Interpolation
    ) -> None:
        images, poses = noise(2, 1, 2, 3).requires_grad_(), noise(2, 2, 3, seed=1)

        def move(images: Tensor, stacked: Tensor) -> Tensor:
            pose = Pose(stacked)
            return warp(images, pose, interpolation=interpolation, canvas=1)

        assert torch.autograd.gradcheck(move, (images, poses.requires_grad_()))

    def test_gradcheck_of_shared_poses(self) -> None:
        images, poses = noise(2, 2, 3, 3).requires_grad_(), noise(3, 3, seed=1)

        def move(images: Tensor, stacked: Tensor) -> Tensor:
            return warp_all(images, Pose(stacked))

        assert torch.autograd.gradcheck(move, (images, poses.requires_grad_()))


class TestBatches:
    def one_by_one(self, images: Tensor, poses: Pose, **options: Any) -> Iterator[Tensor]:
        for i in range(len(poses)):
            for image in images:
                yield warp(image[None], poses[i : i + 1], **options)[0]

    @every_fill
    def test_warp_all_is_every_pose_on_every_image(self, fill: Fill) -> None:
        images, poses = noise(3, 2, 5, 8), poses_of(POSES)
        moved = warp_all(images, poses, fill=fill)
        assert moved.shape == (len(POSES), 3, 2, 5, 8)
        expected = torch.stack(list(self.one_by_one(images, poses, fill=fill)))
        torch.testing.assert_close(moved.flatten(0, 1), expected, rtol=0, atol=1e-12)

    def test_one_pose_serves_the_whole_batch(self) -> None:
        images, pose = noise(3, 2, 5, 8), poses_of(POSES[1:2])
        expected = torch.stack(list(self.one_by_one(images, pose)))
        torch.testing.assert_close(warp(images, pose), expected, rtol=0, atol=1e-12)

    def test_each_image_has_its_own_pose(self) -> None:
        images, pose = noise(5, 2, 5, 8), poses_of(POSES)
        expected = [warp(images[i : i + 1], pose[i : i + 1])[0] for i in range(5)]
        torch.testing.assert_close(warp(images, pose), torch.stack(expected), rtol=0, atol=1e-12)

    def test_axes_in_front_move_every_image_several_times(self) -> None:
        images, poses = noise(4, 2, 5, 8), Pose(4 * noise(2, 3, 4, 3, seed=1))
        moved = warp(images, poses)
        assert moved.shape == (2, 3, 4, 2, 5, 8)
        for i in range(2):
            for k in range(3):
                expected = warp(images, poses[i, k])
                torch.testing.assert_close(moved[i, k], expected, rtol=0, atol=1e-12)

    def test_axes_in_front_of_shared_poses(self) -> None:
        images, poses = noise(4, 2, 5, 8), poses_of(POSES)
        assert torch.equal(warp(images, poses[:, None]), warp_all(images, poses))

    def test_neither_images_nor_pose_are_changed(self) -> None:
        images, pose = noise(2, 1, 4, 4), poses_of(POSES[:2])
        before = images.clone(), pose.values.clone()
        warp(images, pose, canvas=2, fill="reflection")
        assert torch.equal(images, before[0])
        assert torch.equal(pose.values, before[1])


class TestCanvas:
    def test_canvas_pads_with_black_on_every_side(self) -> None:
        images = noise(2, 3, 5, 8)
        assert torch.equal(warp(images, Pose.zeros(1), canvas=4), F.pad(images, [4] * 4))

    def test_nothing_is_cropped_by_a_shift(self) -> None:
        images = noise(1, 1, 5, 8)
        moved = warp(images, Pose.of(3, -3), canvas=3)
        assert torch.equal(moved[..., :5, 6:], images)
        assert moved.sum() == images.sum()

    def test_nothing_is_cropped_by_a_turn(self) -> None:
        images = noise(1, 1, 6, 10)
        there = warp(images, Pose.of(angle=90.0), canvas=3)
        back = warp(there, Pose.of(angle=-90.0))
        assert torch.equal(back[..., 3:-3, 3:-3], images)

    def test_the_same_turn_without_a_canvas_crops(self) -> None:
        images = noise(1, 1, 6, 10)
        back = warp(warp(images, Pose.of(angle=90.0)), Pose.of(angle=-90.0))
        assert back.sum() < images.sum()

    def test_canvas_agrees_with_scipy_on_the_padded_image(self) -> None:
        image = noise(1, 2, 7, 10)
        padded = F.pad(image, [5] * 4)[0].numpy()
        moved = warp(image, poses_of(POSES[1:2]), canvas=5)[0].numpy()
        np.testing.assert_allclose(moved, scipy_warp(padded, *POSES[1]), rtol=0, atol=1e-9)


class TestErrors:
    images = torch.zeros(3, 1, 4, 4)

    def test_uint8_images(self) -> None:
        with pytest.raises(
            ValueError, match=r"torch.uint8 .* up to 255 use images.float\(\) / 255"
        ):
            warp(self.images.byte(), Pose.zeros(1))

    def test_images_without_a_batch_axis(self) -> None:
        with pytest.raises(ValueError, match=r"must be float, N x C x H x W, .*\(1, 4, 4\)"):
            warp(self.images[0], Pose.zeros(1))

    def test_another_number_of_poses_than_images(self) -> None:
        with pytest.raises(ValueError, match=r"3 images need one pose each .*are 2; .*warp_all"):
            warp(self.images, Pose.zeros(2))

    def test_a_pose_without_axes(self) -> None:
        with pytest.raises(ValueError, match=r"a pose without an axis .* make it with Pose\.of"):
            warp(self.images, Pose.zeros(1)[0])

    def test_candidates_given_to_warp_all(self) -> None:
        with pytest.raises(ValueError, match=r"needs poses of shape \(M,\), .*\(2, 3\); use warp"):
            warp_all(self.images, Pose.zeros(2, 3))

    def test_unknown_fill(self) -> None:
        with pytest.raises(ValueError, match="'white' is not one of black, reflection, border"):
            warp(self.images, Pose.zeros(1), fill="white")

    def test_unknown_interpolation(self) -> None:
        with pytest.raises(ValueError, match="'area' is not one of nearest, bilinear, bicubic"):
            warp_all(self.images, Pose.zeros(1), interpolation="area")  # type: ignore[arg-type]

    def test_negative_canvas(self) -> None:
        with pytest.raises(ValueError, match="canvas must be at least 0 pixels, but is -1"):
            warp(self.images, Pose.zeros(1), canvas=-1)
