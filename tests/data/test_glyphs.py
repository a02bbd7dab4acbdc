"""Glyphs: made again from the seed, spread as told, and learnable."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from upright.data import LabelledImages, load_data
from upright.data.glyphs import MILD, NONE, WIDE, Spread, glyphs
from upright.data.glyphs.__main__ import main
from upright.data.glyphs.number import FONTS, Number, coverage

POSE = ("dx", "dy", "angle")
SEVEN = Number(
    digit=7,
    left=None,
    right=None,
    font="DejaVuSans-Bold",
    height=16,
    stretch=0.9,
    spacing=0.2,
    dx=0,
    dy=0,
    angle=0,
)


@pytest.fixture(scope="module")
def train() -> LabelledImages:
    return glyphs(2000)


def as_rows(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


# --- the stream of images -------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_images_and_labels() -> None:
    one, two = glyphs(50, seed=3), glyphs(50, seed=3)
    assert torch.equal(one.images, two.images)
    assert torch.equal(one.labels, two.labels)


def test_a_larger_count_begins_with_the_smaller_one(train: LabelledImages) -> None:
    small = glyphs(40)
    assert torch.equal(train.images[:40], small.images)
    assert torch.equal(train.labels[:40], small.labels)


def test_global_random_state_is_neither_used_nor_changed() -> None:
    np.random.seed(1)
    before = np.random.get_state(legacy=False)
    one = glyphs(5)
    assert str(np.random.get_state(legacy=False)) == str(before)
    np.random.seed(2)
    assert torch.equal(one.images, glyphs(5).images)


def test_train_test_and_other_seeds_share_no_image(train: LabelledImages) -> None:
    seen = as_rows(train.images)
    assert len(seen) == len(train)
    assert not seen & as_rows(glyphs(300, split="test").images)
    assert not seen & as_rows(glyphs(300, seed=1).images)


def test_images_are_32_pixels_rgb_and_digits_about_equally_frequent(train: LabelledImages) -> None:
    assert train.images.shape == (2000, 3, 32, 32)
    assert train.classes == tuple("0123456789")
    counts = torch.bincount(train.labels, minlength=10)
    assert counts.min() > 140  # 200 expected, standard deviation 13
    assert counts.max() < 260


# --- the spread -----------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.floats(0, 180), st.floats(0, 16))
def test_the_spread_scales_the_pose_and_nothing_else(seed: int, turn: float, shift: float) -> None:
    unit = Number.draw(np.random.default_rng(seed), 1, 1)
    number = Number.draw(np.random.default_rng(seed), turn, shift)
    expected = replace(unit, dx=unit.dx * shift, dy=unit.dy * shift, angle=unit.angle * turn)
    assert asdict(number) == pytest.approx(asdict(expected))


def test_poses_fill_the_box_of_the_spread_evenly() -> None:
    rng = np.random.default_rng(0)
    numbers = [Number.draw(rng, 30, 3) for _ in range(4000)]
    poses = np.array([[getattr(number, name) for name in POSE] for number in numbers])
    fractions = poses / [3, 3, 30]
    assert np.abs(fractions).max() <= 1
    occupied = np.histogramdd(fractions, bins=5, range=[(-1, 1)] * 3)[0]
    assert occupied.min() > 8  # 32 expected, standard deviation 6
    assert occupied.max() < 64


def test_without_spread_every_digit_of_every_font_sits_in_the_middle() -> None:
    for font in FONTS:
        for digit in range(10):
            ink = coverage(replace(SEVEN, font=font, digit=digit, height=20))
            rows, columns = np.nonzero(ink > 0.02)
            assert (rows.min() + rows.max()) / 2 == pytest.approx(15.5, abs=1)
            assert (columns.min() + columns.max()) / 2 == pytest.approx(15.5, abs=1)
            assert np.ptp(rows) + 1 == pytest.approx(20, abs=2)


def test_without_spread_a_digit_is_upright() -> None:
    zero = replace(SEVEN, digit=0, font="DejaVuSans")
    np.testing.assert_allclose(coverage(zero), coverage(zero)[:, ::-1], atol=0.15)
    turned = coverage(replace(zero, angle=10))
    assert np.abs(turned - turned[:, ::-1]).max() > 0.5


def test_a_positive_angle_turns_the_number_counter_clockwise() -> None:
    number = replace(SEVEN, left=2, right=4)
    turned = coverage(replace(number, angle=90))
    np.testing.assert_allclose(turned, np.rot90(coverage(number)), atol=0.02)


def test_positive_shifts_move_the_number_right_and_down() -> None:
    moved = coverage(replace(SEVEN, dx=4, dy=2))
    np.testing.assert_allclose(moved, np.roll(coverage(SEVEN), (2, 4), axis=(0, 1)), atol=0.02)


def test_a_neighbour_adds_ink_beside_the_digit_and_none_on_it() -> None:
    alone, pair = coverage(SEVEN), coverage(replace(SEVEN, left=3))
    added = pair - alone
    first = np.nonzero(alone.sum(0))[0].min()
    assert added[:, :first].sum() > 20
    assert not added[:, first + 1 :].any()


def test_labels_and_colours_stay_while_the_spread_changes() -> None:
    none, wide = glyphs(100, spread=NONE), glyphs(100, spread=WIDE)
    assert torch.equal(none.labels, wide.labels)
    drift = none.as_float().mean((2, 3)) - wide.as_float().mean((2, 3))
    assert drift.abs().max() < 0.1
    assert not as_rows(none.images) & as_rows(wide.images)


# --- digits that can be told apart ----------------------------------------------------------------


def test_no_two_digits_of_a_font_look_alike() -> None:
    for font in FONTS:
        inks = [coverage(replace(SEVEN, font=font, digit=digit)) for digit in range(10)]
        for one in range(10):
            for two in range(one):
                assert np.abs(inks[one] - inks[two]).sum() > 10


def linear_accuracy(spread: Spread) -> float:
    """Of ridge regression on how far each pixel's brightness is from the image's median."""
    features, targets = [], []
    for data in (glyphs(2000, spread=spread), glyphs(500, spread=spread, split="test")):
        grey = data.as_float().mean(1).flatten(1).double()
        features.append((grey - grey.median(1, keepdim=True).values).abs())
        targets.append(data.labels)
    one_hot = torch.nn.functional.one_hot(targets[0], 10).double()
    gram = features[0].T @ features[0] + 10 * torch.eye(1024, dtype=torch.float64)
    weights = torch.linalg.solve(gram, features[0].T @ one_hot)
    return float(((features[1] @ weights).argmax(1) == targets[1]).double().mean())


def test_a_linear_model_learns_upright_digits_and_a_wide_spread_is_harder_for_it() -> None:
    upright, wide = linear_accuracy(NONE), linear_accuracy(WIDE)
    assert upright > 0.6
    assert upright - wide > 0.1
    assert wide > 0.2  # chance is 0.1


# --- by name, and as a sheet ----------------------------------------------------------------------


def test_by_name_glyphs_are_the_test_split_with_the_default_spread() -> None:
    named = load_data("glyphs", limit=30, seed=5)
    assert torch.equal(named.images, glyphs(30, seed=5, spread=MILD, split="test").images)


def test_by_name_and_without_limit_there_are_2000_test_images() -> None:
    assert len(load_data("glyphs")) == 2000


def test_the_contact_sheet_has_a_column_for_each_digit(tmp_path: Path) -> None:
    assert main([str(tmp_path / "sheet.png")]) == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 10 * 3 * 32


def test_the_contact_sheet_asks_for_one_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: python -m upright.data.glyphs OUT.png" in capsys.readouterr().err


# --- bad arguments --------------------------------------------------------------------------------


def test_no_images_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="ask for at least 1"):
        glyphs(0)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=r"give 0 to 2\*\*32 - 1"):
        glyphs(1, seed=seed)


@pytest.mark.parametrize("turn", [-1, 181, float("nan")])
def test_a_spread_out_of_range_is_refused(turn: float) -> None:
    with pytest.raises(ValueError, match="give 0 to 180 degrees"):
        Spread(max_rotation=turn, max_shift=0)
    with pytest.raises(ValueError, match="give 0 to 16 pixels"):
        Spread(max_rotation=0, max_shift=turn)
