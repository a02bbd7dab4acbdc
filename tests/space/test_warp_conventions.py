"""The conventions of the warp, each in a test that has its name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from upright import Pose, warp


def one_bright_pixel(height: int, width: int, row: int, column: int) -> Tensor:
    image = torch.zeros(1, 1, height, width)
    image[0, 0, row, column] = 1
    return image


def bright_pixels(image: Tensor) -> list[list[int]]:
    assert set(image.unique().tolist()) <= {0.0, 1.0}
    return image[0, 0].nonzero().tolist()


def test_positive_dx_moves_content_right() -> None:
    moved = warp(one_bright_pixel(7, 7, 3, 3), Pose.of(dx=2.0))
    assert bright_pixels(moved) == [[3, 5]]


def test_positive_dy_moves_content_down() -> None:
    moved = warp(one_bright_pixel(7, 7, 3, 3), Pose.of(dy=2.0))
    assert bright_pixels(moved) == [[5, 3]]


def test_positive_angle_turns_counter_clockwise_as_displayed() -> None:
    right_of_centre = one_bright_pixel(7, 7, 3, 5)
    assert bright_pixels(warp(right_of_centre, Pose.of(angle=90.0))) == [[1, 3]]


def test_small_positive_angle_lifts_what_is_right_of_the_centre() -> None:
    moved = warp(one_bright_pixel(9, 9, 4, 8), Pose.of(angle=5.0))[0, 0]
    assert moved[3, 8] > 0
    assert moved[5, 8] == 0


def test_rotation_comes_before_translation() -> None:
    right_of_centre = one_bright_pixel(7, 7, 3, 5)
    assert bright_pixels(warp(right_of_centre, Pose.of(dx=1.0, angle=90.0))) == [[1, 4]]


def test_rotation_is_about_the_point_between_the_pixels_of_an_even_image() -> None:
    moved = warp(one_bright_pixel(4, 4, 0, 1), Pose.of(angle=180.0))
    assert bright_pixels(moved) == [[3, 2]]


@pytest.mark.parametrize("size", [8, 32, 33, 224])
def test_3_px_means_3_px(size: int) -> None:
    moved = warp(one_bright_pixel(size, size, 2, 2), Pose.of(dx=3.0))
    assert bright_pixels(moved) == [[2, 5]]


def test_a_px_is_a_px_in_both_directions_of_a_non_square_image() -> None:
    moved = warp(one_bright_pixel(6, 40, 1, 1), Pose.of(dx=3.0, dy=3.0))
    assert bright_pixels(moved) == [[4, 4]]


def test_a_turn_keeps_distances_in_a_non_square_image() -> None:
    right_of_centre = one_bright_pixel(7, 11, 3, 8)
    assert bright_pixels(warp(right_of_centre, Pose.of(angle=90.0))) == [[0, 5]]


def test_half_a_px_shares_a_pixel_between_two() -> None:
    moved = warp(one_bright_pixel(3, 5, 1, 2), Pose.of(dx=0.5))
    assert moved[0, 0, 1].tolist() == [0, 0, 0.5, 0.5, 0]


def test_reflection_repeats_the_border_pixel() -> None:
    row = torch.tensor([1.0, 2, 3, 4]).reshape(1, 1, 1, 4)
    moved = warp(row, Pose.of(dx=3.0), fill="reflection")
    assert moved.flatten().tolist() == [3, 2, 1, 1]


def test_border_continues_the_border_pixel() -> None:
    row = torch.tensor([1.0, 2, 3, 4]).reshape(1, 1, 1, 4)
    assert warp(row, Pose.of(dx=2.0), fill="border").flatten().tolist() == [1, 1, 1, 2]


def test_fill_is_black_unless_told_otherwise() -> None:
    assert warp(torch.ones(1, 1, 1, 4), Pose.of(dx=-1.0)).flatten().tolist() == [1, 1, 1, 0]
