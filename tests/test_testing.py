"""upright.testing: its numbers for functions whose errors are known, and what it says of them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from upright import PAPER, Pose, Space, warp
from upright.models.group_conv import P4, P4M, GroupPool, LiftingConv
from upright.testing import (
    Transformation,
    assert_equivariant,
    assert_invariant,
    equivariance_error,
    invariance_error,
    moved_by,
    quarter_turns,
)


def noise(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def corner(images: Tensor) -> Tensor:
    """The pixel at the top left."""
    return images[..., 0, 0]


def corner_image() -> Tensor:
    """Values at the corners: top left 1, top right 2, bottom left 4, bottom right 8."""
    image = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    image[..., 0, 0], image[..., 0, -1], image[..., -1, 0], image[..., -1, -1] = 1, 2, 4, 8
    return image


def test_the_invariance_error_is_the_largest_change_of_an_output() -> None:
    # A turn brings the top right, then the bottom right, then the bottom left to the top left.
    by_turn = [invariance_error(corner, corner_image(), [turn]) for turn in quarter_turns()]
    assert by_turn == [2 - 1, 8 - 1, 4 - 1]
    assert invariance_error(corner, corner_image(), quarter_turns()) == 7


def test_the_equivariance_error_compares_with_the_moved_output() -> None:
    lit = corner_image()
    brighter = lambda images: images + lit  # noqa: E731
    turned = Transformation("turned", lambda images: images.rot90(1, (-2, -1)))
    # At the top right the light is 2, where a turn brings the 8 of the bottom right.
    assert equivariance_error(brighter, noise(1, 1, 4, 4), [turned]) == pytest.approx(8 - 2)
    assert equivariance_error(lambda images: 3 * images, noise(2, 1, 4, 4), [turned]) == 0


def test_quarter_turns_are_those_of_warp_and_mirrors_come_first() -> None:
    images = noise(2, 3, 5, 5)
    for number, turn in enumerate(quarter_turns(), 1):
        assert torch.equal(turn.on_images(images), warp(images, Pose.of(angle=90.0 * number)))
    eight = quarter_turns(mirrors=True)
    assert len({turn.name for turn in eight}) == 7
    mirrored = next(turn for turn in eight if turn.name == "mirrored, turned by 90 degrees")
    assert torch.equal(mirrored.on_images(images), images.flip(-1).rot90(1, (-2, -1)))


@pytest.mark.parametrize("group", [P4, P4M])
def test_planes_turn_with_the_features_of_a_group_convolution(group: object) -> None:
    mirrors = group is P4M
    lifted = LiftingConv(P4M if mirrors else P4, 3, 2, 3).double().eval()
    images = noise(1, 3, 6, 6)
    with_planes = quarter_turns(mirrors=mirrors, planes=True)
    assert_equivariant(lifted, images, with_planes, tolerance=1e-12)
    assert equivariance_error(lifted, images, quarter_turns(mirrors=mirrors)) > 0.1
    pooled = nn.Sequential(lifted, GroupPool(P4M if mirrors else P4)).eval()
    assert_equivariant(pooled, images, quarter_turns(mirrors=mirrors), tolerance=1e-12)


def test_poses_of_a_space_are_tried_one_by_one() -> None:
    images = noise(2, 3, 8, 8)
    poses = PAPER.grid((1, 1, 3))
    names = [motion.name for motion in moved_by(poses)]
    assert names == [f"at dx 0 px, dy 0 px, angle {angle} degrees" for angle in (-30, 0, 30)]
    expected = max(
        float((warp(images, poses[k : k + 1], fill="border") - images).abs().max()) for k in (0, 2)
    )
    found = invariance_error(lambda images: images, images, moved_by(poses, fill="border"))
    assert found == pytest.approx(expected)
    # Resampling is linear: brightness can be changed before or after.
    assert equivariance_error(lambda images: 2 * images, images, moved_by(poses)) < 1e-12


def test_poses_of_any_space_are_tried() -> None:
    poses = Space.of("zoom(1.25) brightness(0..0.2) blur(1px)").grid((2, 2, 1))
    names = [motion.name for motion in moved_by(poses)]
    assert names[0] == "at zoom 0.8x, brightness 0, blur 0 px"
    assert names[-1] == "at zoom 1.25x, brightness 0.2, blur 0 px"
    images = 0.5 * noise(2, 3, 8, 8)
    brighter = moved_by(poses.like(poses.values * torch.tensor([0.0, 1.0, 0.0])))
    assert invariance_error(lambda x: x, images, brighter) == pytest.approx(0.2)
    assert_invariant(
        lambda x: x - x.mean((1, 2, 3), keepdim=True), images, brighter, tolerance=1e-6
    )


def test_a_network_that_is_exact_passes() -> None:
    blur = nn.AvgPool2d(3, stride=1, padding=1).eval()
    assert_equivariant(blur, noise(2, 3, 8, 8), quarter_turns(mirrors=True))
    assert_invariant(lambda x: blur(x).mean((2, 3)), noise(2, 3, 8, 8), quarter_turns())


def test_the_message_names_what_fails_by_how_much_and_the_usual_reason() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_equivariant(lambda x: x[..., ::2, ::2], noise(1, 1, 8, 8), quarter_turns())
    message = str(caught.value)
    assert message.startswith("outputs do not move with the images: turned by")
    assert "3 of 3 transformations fail" in message
    assert "a stride on an even size" in message
    with pytest.raises(AssertionError, match=r"stay as they are: turned by 180 .* off by 7 where"):
        assert_invariant(corner, corner_image(), quarter_turns())


def test_only_the_transformations_that_fail_are_named() -> None:
    with pytest.raises(AssertionError, match=r"1 of 2 .* \(turned\)"):
        assert_invariant(
            lambda images: images[..., 0],
            noise(1, 1, 4, 4),
            [
                Transformation("same", lambda images: images),
                Transformation("turned", lambda images: images.rot90(1, (-2, -1))),
            ],
        )


def test_errors_of_rounding_are_called_so() -> None:
    images = torch.tensor([[[[1.0, 6e-8], [6e-8, 0.0]]]])

    def one_by_one(images: Tensor) -> Tensor:
        a, b, c, d = images.flatten(2).unbind(2)
        return ((a + b) + c) + d

    assert 0 < invariance_error(one_by_one, images, quarter_turns()) < 1e-6
    with pytest.raises(AssertionError, match=r"size of rounding errors: .* in float64"):
        assert_invariant(one_by_one, images, quarter_turns())


def test_outputs_that_are_not_numbers_never_pass() -> None:
    broken = lambda images: images[:, :, 0, 0] * math.nan  # noqa: E731
    with pytest.raises(AssertionError, match="off by nan"):
        assert_invariant(broken, noise(1, 1, 4, 4), quarter_turns(), tolerance=1e9)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="no transformation to try"):
        invariance_error(corner, noise(1, 1, 4, 4), [])
    with pytest.raises(ValueError, match=r"shape \(1, 1, 6, 4\), not \(1, 1, 4, 6\)"):
        invariance_error(lambda images: images, noise(1, 1, 4, 6), quarter_turns())


def test_a_network_in_training_mode_is_warned_of() -> None:
    norm = nn.BatchNorm2d(1).double()
    with pytest.warns(UserWarning, match="in training mode"):
        equivariance_error(norm, noise(2, 1, 4, 4), quarter_turns())
