"""A view of larger images: the central pixels of what is moved, with real ones around them."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from geometry_reference import scipy_resample, undone
from random_inputs import MIXED, draw, noise, parts_of
from upright import PAPER, Pose, Space, evaluate, warp, warp_all
from upright.warp import FILLS, Interpolation, Resampling
from upright.window import Window

SPATIAL = "shift(3px) rotate(30) zoom(0.8..1.2) perspective(0.15)"
SIZES = [((12, 12), 8), ((13, 13), 8), ((15, 12), 7), ((9, 14), 9), ((10, 10), 10), ((11, 8), 1)]
every_size = pytest.mark.parametrize(("size", "view"), SIZES)


def central(images: Tensor, view: int) -> Tensor:
    """Of an odd rest, the larger part is below and on the right."""
    top, left = (images.shape[-2] - view) // 2, (images.shape[-1] - view) // 2
    return images[..., top : top + view, left : left + view]


@every_size
@pytest.mark.parametrize("text", [SPATIAL, MIXED, "gamma blur", str(PAPER)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_zero_is_the_central_crop_bit_for_bit(
    size: tuple[int, int], view: int, text: str, dtype: torch.dtype
) -> None:
    images, space = noise(2, 3, *size, dtype=dtype), Space.of(text)
    for shape in ((1,), (2,), (3, 1)):
        seen = warp(images, space.zeros(*shape), view=view)
        assert seen.dtype == dtype
        assert seen.equal(central(images, view).expand_as(seen))


@every_size
def test_a_whole_shift_brings_in_real_pixels(size: tuple[int, int], view: int) -> None:
    images = noise(1, 2, *size, dtype=torch.float32)
    room = min((size[0] - view) // 2, (size[1] - view) // 2)
    top, left = (size[0] - view) // 2, (size[1] - view) // 2
    for dx, dy in [(room, -room), (-room, 0), (0, room)]:
        seen = warp(images, Pose.of(dx, dy), view=view)
        rows, columns = slice(top - dy, top - dy + view), slice(left - dx, left - dx + view)
        assert seen.equal(images[..., rows, columns])


def test_black_comes_in_only_where_the_image_ends() -> None:
    images = torch.ones(1, 1, 12, 12)
    assert warp(images, Pose.of(dx=2), view=8).min() == 1
    assert warp(images, Pose.of(dx=3), view=8)[0, 0, 0].tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


@every_size
@pytest.mark.parametrize("fill", FILLS)
def test_what_is_seen_agrees_with_scipy_about_the_centre_of_the_view(
    size: tuple[int, int], view: int, fill: Any
) -> None:
    pose, images = draw(SPATIAL, 3), noise(3, 2, *size)
    seen = warp(images, pose, fill=fill, view=view)
    # The centre of the view may lie half a pixel from that of the image.
    aside = [((side - view) // 2 + (view - 1) / 2) - (side - 1) / 2 for side in size]
    for place, (image, result) in enumerate(zip(images, seen, strict=True)):
        parts = [(name, part.values[place].tolist()) for name, part in parts_of(pose)]
        about_view = undone(parts, (view, view))

        def source(x: Any, y: Any, about: Any = about_view) -> tuple[Any, Any]:
            from_x, from_y = about(x - aside[1], y - aside[0])
            return from_x + aside[1], from_y + aside[0]

        expected = central(torch.from_numpy(scipy_resample(image.numpy(), source, fill)), view)
        np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "bilinear-twice"])
@pytest.mark.parametrize("fill", [*FILLS, "#ff8000"])
@pytest.mark.parametrize("text", [str(PAPER), MIXED, "contrast shift(3px)", "shift(2px) contrast"])
def test_an_even_rest_is_the_centre_of_all_that_was_moved(
    text: str, fill: str, interpolation: Any
) -> None:
    """Not with a perspective, whose tilt is about the size of what is seen."""
    images, pose = noise(2, 3, 16, 12), draw(text, 4, 2)
    way: dict[str, Any] = {"fill": fill, "interpolation": interpolation}
    expected = central(warp(images, pose, **way), 8)
    torch.testing.assert_close(warp(images, pose, view=8, **way), expected, rtol=0, atol=1e-12)


def test_a_tilt_is_about_what_is_seen() -> None:
    pose = Space.of("perspective").pose(tilt_x=torch.tensor([0.2]).double())
    large = noise(1, 1, 40, 40)
    inside = torch.zeros_like(large)
    central(inside, 16)[:] = central(large, 16)
    # At the middle of its right edge the view shows what lies at 8 / (1 - 0.2): outside it.
    seen = warp(large, pose, view=16)[..., -1]
    assert not torch.isclose(seen, warp(inside, pose, view=16)[..., -1]).all()
    matrix = pose.chain.inverse_matrix(pose.values, (16, 16))[0]
    edge = matrix @ torch.tensor([8.0, 0.0, 1.0]).double()
    assert (edge[0] / edge[2]).item() == pytest.approx(8 / 0.8)


def test_every_shape_of_poses() -> None:
    images, poses = noise(3, 3, 12, 12), draw(MIXED, 4)
    shared = warp_all(images, poses, view=7)
    assert shared.shape == (4, 3, 3, 7, 7)
    for place in range(4):
        alone = warp(images, poses[place : place + 1], view=7)
        torch.testing.assert_close(shared[place], alone, rtol=0, atol=1e-12)


def test_a_canvas_is_laid_around_the_larger_image() -> None:
    images, pose = noise(2, 1, 8, 8), draw(str(PAPER), 2)
    wide = warp(images, Pose.zeros(1), canvas=2)
    assert warp(images, pose, canvas=2, view=10).equal(warp(wide, pose, view=10))


def test_gradcheck_in_images_and_pose() -> None:
    pose = draw(SPATIAL, 2)
    images = noise(2, 1, 6, 7).requires_grad_()
    values = (0.7 * pose.values + 0.01).requires_grad_()

    def seen(images: Tensor, values: Tensor) -> Tensor:
        return warp(images, pose.like(values), view=3)

    assert torch.autograd.gradcheck(seen, (images, values))


def test_per_cent_are_of_what_is_seen() -> None:
    images = noise(1, 1, 20, 30)
    assert Window.of(images, 10).size == (10, 10)
    space = Space.of("shift(10%)").in_pixels(*Window.of(images, 10).size)
    assert space.limits == ((-1, 1), (-1, 1))


@pytest.mark.parametrize("view", [0, -1, 9])
def test_a_view_that_does_not_lie_in_the_images_is_refused(view: int) -> None:
    with pytest.raises(
        ValueError, match=rf"a view of {view} pixels does not lie in images of 9 x 8"
    ):
        warp(noise(1, 1, 9, 8), Pose.zeros(1), view=view)


def test_an_evaluation_shows_the_model_real_pixels() -> None:
    """A model that looks for black sees it in small images that are moved, but not in a view."""
    data = torch.ones(4, 3, 16, 16), torch.zeros(4, dtype=torch.int64)

    def sees_black(images: Tensor) -> Tensor:
        black = (images < 0.5).float().amax((1, 2, 3))
        return 9 * torch.stack((1 - 2 * black, black), 1)

    small = evaluate(sees_black, data, attacks=["grid-3x3x1"])
    assert small.attacks["grid-3x3x1"].accuracy == 0
    viewed = evaluate(sees_black, data, attacks=["grid-3x3x1"], view=10)
    assert viewed.attacks["grid-3x3x1"].accuracy == 1


def test_a_canvas_changes_no_tilt() -> None:
    images = torch.rand(1, 3, 16, 12, generator=torch.Generator().manual_seed(0))
    pose = Space.of("perspective").pose(tilt_x=0.2, tilt_y=-0.1)
    plain, wide = warp(images, pose), warp(images, pose, canvas=8)
    torch.testing.assert_close(wide[..., 8:-8, 8:-8], plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize("interpolation", get_args(Interpolation))
@pytest.mark.parametrize("fill", [*FILLS, "#204060"])
@pytest.mark.parametrize("view", [None, 6])
def test_a_resampling_is_a_warp_of_which_all_but_the_pose_is_said(
    fill: str, interpolation: Interpolation, view: int | None
) -> None:
    images, pose = noise(3, 3, 9, 8, dtype=torch.float32), draw(str(PAPER), 3)
    expected = warp(images, pose, fill=fill, interpolation=interpolation, view=view)
    assert Resampling(fill, interpolation, view)(images, pose).equal(expected)


@pytest.mark.parametrize("wrong", [{"fill": "white"}, {"interpolation": "linear"}])
def test_a_resampling_that_cannot_be_is_refused_before_any_image(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong.values()))):
        Resampling(**wrong)
