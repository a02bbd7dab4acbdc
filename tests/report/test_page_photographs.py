"""The report of photographs: large images, real borders, models with many classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import made_up_report as made_up
from browser import chromium
from explorer_in_browser import all_texts, drawn, find, open_page, pose_of_sliders, set_slider
from upright import warp
from upright.data import LabelledImages
from upright.evaluation import Question
from upright.measure import Guest, Loaded, choose_shown, measure, save_answers
from upright.report.figures import find_example
from upright.report.page import read_contents, write_report
from upright.report.page.photographs import hold
from upright.report.saved import read_saved

CLASSES = 40


class Brightness(nn.Module):
    """Of many classes, the ones nearest to the mean of what is seen."""

    def __init__(self):
        super().__init__()
        self.middles = nn.Parameter(torch.linspace(0, 1, CLASSES))

    def forward(self, images):
        assert images.shape[-2:] == (160, 160)
        return -100 * (images.mean((1, 2, 3))[:, None] - self.middles) ** 2


def smooth(count, height, width, seed=0):
    """Images without sharp edges, which JPEG and scaling hardly change: uint8, N x 3 x H x W."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 4, 5, 3), dtype=np.uint8)
    size, way = (width, height), Image.Resampling.BICUBIC
    pictures = [Image.fromarray(each).resize(size, way) for each in coarse]
    channels_first = [np.asarray(picture).transpose(2, 0, 1) for picture in pictures]
    return np.ascontiguousarray(np.stack(channels_first))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What ``evaluate --save`` keeps of photographs with a view, and their report."""
    folder = tmp_path_factory.mktemp("photographs")
    model = Brightness().eval()
    data = LabelledImages(
        torch.from_numpy(smooth(3, 200, 240)),
        torch.tensor([7, 20, 33]),
        tuple(f"class {number}" for number in range(CLASSES)),
    )
    question = Question.of(
        ["grid-3x3x5"], space="shift(10%) rotate(30)", view=160, only_accuracy=True
    )
    loaded = Loaded(
        model=model,
        subject=Guest.of(model, "brightness"),
        data=data,
        data_name="photographs",
        question=question,
        device=torch.device("cpu"),
    )
    found = measure(loaded)
    save_answers(folder / "saved", found, choose_shown(loaded), name="brightness")
    write_report(read_contents(folder), folder / "report")
    return folder


@pytest.fixture(scope="module")
def saved(results):
    return read_saved(results / "saved")


@pytest.fixture(scope="module")
def page(results):
    with chromium() as driver:
        open_page(driver, (results / "report" / "index.html").as_uri())
        assert driver.get_log("browser") == []
        yield driver


def as_seen(shown, pose):
    image = torch.as_tensor(shown.images[:1]).double() / 255
    return 255 * warp(image, pose, view=shown.view)[0].permute(1, 2, 0).numpy()


def test_limits_are_parts_of_what_models_see(saved):
    assert saved.shown.space.limits[0] == (-16.0, 16.0)
    assert saved.shown.images.shape == (3, 3, 200, 240)


def test_the_five_likeliest_are_saved_for_every_pose(saved):
    (model,), shown = saved.models, saved.shown
    assert model.others.shape == (3, 3, 3, 5, 4)
    poses = shown.poses()
    for place in (0, 17, 44):
        with torch.no_grad():
            image = torch.as_tensor(shown.images[1:2]).float() / 255
            seen = warp(image, poses[place : place + 1], view=160)
            shares = Brightness()(seen).softmax(1)[0]
        order = shares.argsort(descending=True)[:5]
        at = (1, *np.unravel_index(place, shown.counts))
        assert [int(model.predicted[at]), *model.others[at].tolist()] == order.tolist()
        found = [int(model.confidence[at]), *model.others_confidence[at].tolist()]
        assert found == pytest.approx(255 * shares[order].numpy(), abs=1)


def test_few_classes_have_no_others_and_folders_without_them_are_read(made_up_results):
    saved = read_saved(made_up_results / "saved")
    assert [model.others for model in saved.models] == [None] * len(saved.models)
    assert saved.shown.view is None


def test_others_that_do_not_fit_are_refused(saved):
    from upright.report.saved_checks import check_model

    (model,), shown = saved.models, saved.shown
    check_model(shown, model)
    for wrong in (
        {"others": None},
        {"others": model.others[..., :2]},
        {"others": model.others.astype(float)},
        {"others_confidence": model.others_confidence[:1], "others": model.others[:1]},
    ):
        with pytest.raises(ValueError, match="others"):
            check_model(shown, replace(model, **wrong))


def test_the_picture_is_what_models_saw_at_that_pose(page, saved):
    shown = saved.shown
    for pose in ({}, {"angle": 30}, {"dx": 16, "dy": -16, "angle": -15}):
        for name in shown.grid:
            set_slider(page, name, pose.get(name, 0))
        found = drawn(page)
        assert found.shape == (160, 160, 3)
        assert np.abs(found - as_seen(shown, pose_of_sliders(page, shown))).mean() < 2


def test_a_turned_view_has_real_borders(page, saved):
    """No pixel is black in the middle of the sides, as it were of images without more around."""
    for name in saved.shown.grid:
        set_slider(page, name, {"angle": 15}.get(name, 0))
    image = np.full_like(saved.shown.images[0], 255)
    white = warp(torch.as_tensor(image)[None] / 255.0, pose_of_sliders(page, saved.shown), view=160)
    covered = white[0, 0].numpy() > 0.99
    assert covered.mean() > 0.97
    assert (drawn(page).max(-1)[covered] > 0).all()


def test_cards_list_the_next_likeliest(page, saved):
    (model,), shown = saved.models, saved.shown
    for name in shown.grid:
        set_slider(page, name, 0)
    at = (0, 1, 1, 2)
    names = [f"class {number}" for number in model.others[at]]
    label = int(shown.labels[0])
    texts = all_texts(page, ".card .others li span:first-child")
    assert texts == [name + " ✓" * (name == f"class {label}") for name in names]
    assert find(page, ".card .seen b").text == f"class {model.predicted[at]}"


def test_a_page_of_photographs_stays_small(results, saved):
    content = (results / "report" / "index.html").read_text()
    pixels = saved.shown.images.nbytes * 4 / 3
    assert len("".join(hold(saved.shown).pictures)) < pixels / 5
    assert "data:image/jpeg" in content


def test_large_images_are_held_smaller_and_moved_as_far(page, tmp_path):
    """Twice as many pixels along each side are scaled down; the picture hardly differs."""
    shown = made_up.shown("shift(60px) rotate(30)", (3, 3, 3), images=1, side=12)
    large = replace(shown, images=smooth(1, 600, 760, seed=1), view=500)
    held = hold(large)
    assert held.shape == (1, 3, 303, 384)
    model = made_up.model(large, "made-up")
    made_up.write_saved(tmp_path / "saved", large, model)
    write_report(read_contents(tmp_path), tmp_path / "report")
    open_page(page, (tmp_path / "report" / "index.html").as_uri())
    for pose in ({}, {"dx": 60, "angle": 30}):
        for name in large.grid:
            set_slider(page, name, pose.get(name, 0))
        found, exact = drawn(page), as_seen(large, pose_of_sliders(page, large))
        side = found.shape[0]
        assert found.shape == (253, 253, 3)
        scaled = Image.fromarray(exact.round().astype(np.uint8)).resize((side, side))
        assert np.abs(found - np.asarray(scaled, float)).mean() < 2.5


def test_the_figure_of_an_example_shows_what_models_saw(saved):
    example = find_example(saved)
    assert example.moved().shape == example.upright().shape == (3, 160, 160)
    rows, columns = slice(20, 180), slice(40, 200)
    expected = saved.shown.images[example.image][:, rows, columns] / 255
    assert example.upright() == pytest.approx(expected, abs=1e-6)
