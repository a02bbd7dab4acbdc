"""Batches: each image once an epoch, and all of it a function of the recipe and the step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from augmented import augment
from upright.data import LabelledImages
from upright.seeds import seed_for
from upright.train import Recipe
from upright.train.batches import Batches, augmented_rows


def recipe(**changes: object) -> Recipe:
    return Recipe(**{"objective": "std*", "batch": 4, **changes})


@given(images=st.integers(1, 60), batch=st.integers(1, 60), epoch=st.integers(0, 3))
def test_an_epoch_shows_each_image_once_but_for_the_rest_that_fills_no_batch(
    images: int, batch: int, epoch: int
) -> None:
    batches = Batches(images, recipe(batch=min(batch, images)))
    size = min(batch, images)
    steps = images // size
    rows = [batches.rows(step) for step in range(epoch * steps, (epoch + 1) * steps)]
    assert {len(row) for row in rows} == {size}
    seen = torch.cat(rows).tolist()
    assert len(set(seen)) == len(seen) == steps * size
    assert set(seen) <= set(range(images))


def test_epochs_differ_in_their_order_and_in_what_they_leave_out() -> None:
    batches = Batches(30, recipe(batch=4))
    epochs = [torch.cat([batches.rows(7 * epoch + step) for step in range(7)]) for epoch in (0, 1)]
    assert epochs[0].tolist() != epochs[1].tolist()
    assert set(epochs[0].tolist()) != set(epochs[1].tolist())


@given(steps=st.lists(st.integers(0, 200), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_the_rows_of_a_step_do_not_depend_on_the_steps_before_it(
    steps: list[int], seed: int
) -> None:
    used = Batches(17, recipe(seed=seed))
    for step in steps:
        fresh = Batches(17, recipe(seed=seed, steps=step + 1))
        assert used.rows(step).tolist() == fresh.rows(step).tolist()


def test_another_seed_gives_another_order() -> None:
    orders = [
        torch.cat([Batches(32, recipe(seed=seed)).rows(s) for s in range(8)]) for seed in (0, 1)
    ]
    assert orders[0].tolist() != orders[1].tolist()


def test_seeds_are_of_their_own_for_each_run_use_and_step() -> None:
    keys = [
        (seed, use, step) for seed in range(20) for use in ("epoch", "step") for step in range(50)
    ]
    assert len({seed_for(*key) for key in keys}) == len(keys)
    assert all(0 <= seed_for(*key) < 2**63 for key in keys)


def test_data_that_fill_no_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="3 images do not fill a batch of 4"):
        Batches(3, recipe())


def moved(image: np.ndarray, *, mirrored: bool, dx: int, dy: int) -> np.ndarray:
    """Mirror an image (C x H x W), then move its content right by dx and down by dy, into black."""
    height, width = image.shape[1:]
    result = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            from_y, from_x = y - dy, x - dx
            if 0 <= from_y < height and 0 <= from_x < width:
                result[:, y, x] = image[:, from_y, width - 1 - from_x if mirrored else from_x]
    return result


def pictures(count: int) -> Tensor:
    return torch.rand(count, 2, 5, 7, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("flips", [True, False])
@pytest.mark.parametrize("reach", [0, 1, 4])
def test_augmented_images_are_mirrored_and_shifted_exactly(flips: bool, reach: int) -> None:
    images, generator = pictures(40), torch.Generator().manual_seed(7)
    augmented = augment(images, recipe(flips=flips, max_shift=reach), generator)
    draws = torch.Generator().manual_seed(7)
    mirrored = (torch.rand(40, generator=draws) < 0.5).tolist() if flips else [False] * 40
    shifts = torch.zeros(2, 40, dtype=torch.long)
    if reach:
        shifts = torch.randint(-reach, reach + 1, (2, 40), generator=draws)
    expected = [
        moved(image.numpy(), mirrored=flip, dx=dx, dy=dy)
        for image, flip, dx, dy in zip(images, mirrored, *shifts.tolist(), strict=True)
    ]
    assert augmented.dtype == torch.float32
    np.testing.assert_array_equal(augmented.numpy(), np.stack(expected))


def test_all_shifts_up_to_the_limit_are_as_likely_and_half_of_the_images_is_mirrored() -> None:
    count = 9 * 9 * 2 * 100
    # One bright pixel in the middle of 11 x 11 and a dim one to the right of it show every motion.
    image = torch.zeros(1, 1, 11, 11)
    image[..., 5, 5], image[..., 5, 6] = 1.0, 0.5
    generator = torch.Generator().manual_seed(0)
    augmented = augment(image.expand(count, 1, 11, 11), Recipe(objective="std"), generator)
    flat = augmented.flatten(1)
    bright, dim = flat.argmax(1), (flat == 0.5).int().argmax(1)
    kinds, counts = torch.stack((bright, dim)).unique(dim=1, return_counts=True)
    assert kinds.shape[1] == 9 * 9 * 2
    assert set((bright // 11 - 5).tolist()) == set(range(-4, 5))
    # Each of 162 kinds is drawn 100 times on average, with a standard deviation of 10.
    assert counts.min() > 50
    assert counts.max() < 150


def test_without_augmentation_images_stay_as_they_are_and_nothing_is_drawn() -> None:
    images, generator = pictures(3), torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert augment(images, recipe(flips=False), generator).equal(images)
    assert generator.get_state().equal(before)


def test_rows_are_images_in_float32_whatever_the_default_is_and_their_labels() -> None:
    images = (255 * pictures(6)).byte()
    data = LabelledImages(images, torch.tensor([0, 1, 2, 0, 1, 2]), ("a", "b", "c"))
    torch.set_default_dtype(torch.float64)
    try:
        rows = torch.tensor([4, 0, 4])
        taken = augmented_rows(data, rows, recipe(flips=False), torch.Generator())
    finally:
        torch.set_default_dtype(torch.float32)
    assert taken.images.dtype == torch.float32
    assert taken.images.equal(data.as_float()[[4, 0, 4]])
    assert taken.labels.tolist() == [1, 0, 1]
    assert taken.rows is rows
    assert taken.draws is None


def test_rows_say_which_of_them_are_mirrored() -> None:
    data = LabelledImages((255 * pictures(40)).byte(), torch.zeros(40, dtype=torch.long), ("a",))
    taken = augmented_rows(data, torch.arange(40), recipe(), torch.Generator().manual_seed(7))
    assert taken.draws is not None
    for image, original, draw in zip(taken.images, data.as_float(), taken.draws, strict=True):
        assert image.equal(original.flip(-1) if draw < 0.5 else original)
