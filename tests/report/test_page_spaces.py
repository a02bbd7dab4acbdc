"""The report's page for any space: its script does what ``upright.warp`` does, its controls fit."""

from __future__ import annotations

import json
import math
import urllib.parse
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import made_up_report as made_up
from browser import PHONE, chromium, set_size
from explorer_in_browser import (
    all_texts,
    answers_at,
    answers_shown,
    drawn,
    find,
    open_page,
    pose_of_sliders,
    press,
    set_slider,
    warped,
)
from upright import Pose, warp
from upright.families import FAMILIES, Axis, OfPixels, Spatial, family, matrix_of
from upright.report.exhibition import Exhibition
from upright.report.page import read_contents, write_report
from upright.report.page.payload import payload
from upright.report.page.write import _asset
from upright.report.saved import read_saved, write_saved
from upright.space import Space

OWN = [name for name, kind in FAMILIES.items() if kind.__module__.startswith("upright.families.")]
CHAINS = (
    "shift(2px) rotate(40) zoom(0.7..1.4) shear(20)",
    "perspective(0.4) shift(3px) stretch(0.6..1.5)",
    "brightness(0.3) rotate(20) contrast(1.5) blur(0..1.5px) zoom(0.8..1.2) hue(60)",
    "saturation(3) gamma(2) shift(3px) brightness(0.5) rotate(180)",
)


@pytest.fixture(scope="module")
def driver():
    with chromium() as started:
        yield started


@pytest.fixture
def own_families(monkeypatch):
    """Families of somebody's own: one moves points, one changes pixels."""
    monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))

    @family
    class Lean(Spatial):
        name: ClassVar[str] = "lean"
        axes = (Axis("lean_x", "", -0.5, 0.5), Axis("lean_y", "", -0.5, 0.5))

        def matrix(self, values, size):
            del size
            across, down = values.unbind(-1)
            return matrix_of((1, across, down), (0, 1 + down, 0))

    @family
    class Fade(OfPixels):
        name: ClassVar[str] = "fade"
        axes = (Axis("fade", "", 0.0, 0.5),)

        def apply(self, images, values):
            return images * (1 - values[..., 0])


def shown_on_page(where):
    """What the page's script is told of a set of images."""
    (shown,) = payload([Exhibition(where, ())], [], ())["exhibitions"]
    return shown


def warped_by_script(driver, cases):
    """Pixels in [0, 1] after the script's own ``warp``, for images, poses and what is shown."""
    page = '<p id="tip"></p><script id="data" type="application/json">{}</script>'
    driver.get("data:text/html," + urllib.parse.quote(page))
    script = "\n".join(str(_asset(name)) for name in ("tools.js", "axes.js", "warp.js"))
    asked = [
        [image.flatten().tolist(), list(image.shape), pose.values[0].tolist(), shown]
        for image, pose, shown in cases
    ]
    found = driver.execute_script(
        script + "\nreturn arguments[0].map((each) => [...warp(...each)])", asked
    )
    return [np.array(one) for one in found]


def drawn_poses(space, seed):
    values = space.sample(3, generator=torch.Generator().manual_seed(seed)).values.double()
    ends = torch.tensor(space.limits, dtype=torch.float64).T
    return [
        Pose(each[None], space.chain) for each in (*values, *ends, torch.zeros(len(space.axes)))
    ]


@pytest.mark.parametrize(
    ("shape", "view"), [((3, 9, 14), None), ((1, 8, 8), None), ((3, 12, 15), 8), ((1, 9, 9), 4)]
)
def test_the_script_does_what_warp_does_for_every_family_and_for_chains(driver, shape, view):
    draw = np.random.default_rng(0)
    cases, expected = [], []
    for text in (*OWN, *CHAINS):
        space = Space.of(text)
        image = draw.integers(0, 256, shape, dtype=np.uint8)
        where = made_up.shown(text, (2,) * len(space.axes))
        shown = shown_on_page(replace(where, images=image[None], view=view))
        for pose in drawn_poses(space, made_up.hash_of(text)):
            cases.append((image, pose, shown))
            pixels = torch.as_tensor(image)[None].double() / 255
            exact = Pose(pose.values.double(), space.chain)
            expected.append(warp(pixels, exact, view=view)[0].numpy())
    assert len(OWN) == 12
    for found, wanted in zip(warped_by_script(driver, cases), expected, strict=True):
        assert found == pytest.approx(wanted.flatten(), abs=1e-9)


def test_on_a_canvas_the_script_does_what_warp_does(driver):
    """Sizes are those without it, by which a tilt is told."""
    draw, space = np.random.default_rng(0), Space.of("perspective(0.4) shift(3px)")
    small = draw.integers(0, 256, (3, 9, 14), dtype=np.uint8)
    image = np.pad(small, ((0, 0), (2, 2), (2, 2)))
    where = made_up.shown(str(space), (2,) * len(space.axes))
    shown = shown_on_page(replace(where, images=image[None], view=None, canvas=2))
    poses = [*drawn_poses(space, 0)]
    found = warped_by_script(driver, [(image, pose, shown) for pose in poses])
    source = torch.as_tensor(small)[None].double() / 255
    for pixels, pose in zip(found, poses, strict=True):
        exact = Pose(pose.values.double(), space.chain)
        wanted = warp(source, exact, canvas=2)[0].flatten().numpy()
        assert pixels == pytest.approx(wanted, abs=1e-9)


@pytest.mark.usefixtures("own_families")
def test_a_family_of_ones_own_moves_points_on_the_page_too(driver):
    where = made_up.shown("shift(2px) lean(0.4) rotate(20)", (1, 1, 2, 3, 1))
    shown = shown_on_page(where)
    image = np.random.default_rng(0).integers(0, 256, where.images.shape[1:])
    poses = [Pose(each[None].double(), where.space.chain) for each in where.poses().values]
    found = warped_by_script(driver, [(image, pose, shown) for pose in poses])
    pixels = torch.as_tensor(image)[None].double() / 255
    for each, pose in zip(found, poses, strict=True):
        exact = warp(pixels, pose)[0].flatten().numpy()
        assert each == pytest.approx(exact, abs=1e-6)  # grids are float32


def opened(driver, folder, monkeypatch, text, counts):
    """A page for made-up answers over a space, and what was saved."""
    monkeypatch.setattr("upright.report.page.write.all_drawings", lambda *_: ())
    shown = made_up.shown(text, counts)
    write_saved(folder / "saved", shown, made_up.model(shown, "mine"))
    open_page(driver, write_report(read_contents(folder), folder / "page").as_uri())
    return read_saved(folder / "saved")


def click_upper_right(driver):
    """Click into the last cell of the map's first row."""
    found = find(driver, ".map")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    corner = (found.size["width"] // 2 - 8, 10 - found.size["height"] // 2)
    ActionChains(driver).move_to_element_with_offset(found, *corner).click().perform()


def test_more_than_three_axes_have_sliders_each_and_a_map_of_two(driver, tmp_path, monkeypatch):
    text = "shift(2px) rotate(20) zoom(0.8..1.25) brightness(0.2)"
    saved = opened(driver, tmp_path, monkeypatch, text, (3, 3, 3, 5, 5))
    assert all_texts(driver, "#sliders label") == ["Brightness", "Zoom", "Turn", "Right", "Down"]
    assert driver.find_elements(By.CSS_SELECTOR, "#unseen:not([hidden])") == []
    pose = {"zoom": math.log(1.25), "brightness": -0.2, "angle": 20}
    for name, value in pose.items():
        set_slider(driver, name, value)
    assert all_texts(driver, "#sliders output") == ["−0.2", "1.25×", "+20°", "0 px", "0 px"]
    told = "brightness −0.2, zoom 1.25×, 20° counter-clockwise"
    assert find(driver, "#pose").text == f"Shown, and answered: {told}."
    assert answers_shown(driver) == answers_at(saved, 0, **pose)
    exact = pose_of_sliders(driver, saved.shown)
    assert drawn(driver) == pytest.approx(warped(saved.shown, exact), abs=0.51)
    # The map has zoom across and brightness down; after a choice they have changed places.
    set_slider(driver, "brightness", 0)
    click_upper_right(driver)
    assert answers_shown(driver) == answers_at(saved, 0, **pose)
    find(driver, "#map-across option:nth-child(5)").click()
    assert find(driver, "#map-down").get_attribute("value") == "3"
    click_upper_right(driver)
    other = {"zoom": math.log(0.8), "brightness": 0.2, "angle": 20}
    assert answers_shown(driver) == answers_at(saved, 0, **other)
    set_size(driver, PHONE)
    assert driver.execute_script("return document.documentElement.scrollWidth") == PHONE[0]
    assert driver.get_log("browser") == []


def test_where_nothing_shifts_or_turns_only_the_slider_changes_the_picture(
    driver, tmp_path, monkeypatch
):
    saved = opened(driver, tmp_path, monkeypatch, "zoom(0.8..1.25)", (5,))
    assert all_texts(driver, "#sliders label") == ["Zoom"]
    assert not find(driver, "#dial").is_displayed()
    assert not find(driver, "#map-choice").is_displayed()
    for words in ("shift", "turn", "arrows", "knob"):
        assert words not in find(driver, "#explorer").text
    picture = find(driver, "#picture")
    ActionChains(driver).drag_and_drop_by_offset(picture, 60, 40).perform()
    press(picture, Keys.ARROW_LEFT, ",", Keys.ARROW_UP)
    assert find(driver, "#pose").text == "Shown, and answered: as it is."
    set_slider(driver, "zoom", math.log(0.8))
    assert find(driver, "#pose").text == "Shown, and answered: zoom 0.8×."
    assert answers_shown(driver) == answers_at(saved, 0, zoom=math.log(0.8))
    press(picture, Keys.HOME)
    assert answers_shown(driver) == answers_at(saved, 0)
    assert driver.get_log("browser") == []


@pytest.mark.usefixtures("own_families")
def test_the_page_says_what_it_shows_the_picture_without(driver, tmp_path, monkeypatch):
    saved = opened(driver, tmp_path, monkeypatch, "fade(0.5) rotate(20)", (3, 3))
    assert "shown without fade" in find(driver, "#unseen").text
    set_slider(driver, "angle", 20)
    set_slider(driver, "fade", 0.5)
    turned = saved.shown.space.pose(angle=torch.tensor([20.0], dtype=torch.float64))
    assert drawn(driver) == pytest.approx(warped(saved.shown, turned), abs=0.51)
    assert answers_shown(driver) == answers_at(saved, 0, angle=20, fade=0.5)
    assert driver.get_log("browser") == []


@pytest.mark.usefixtures("own_families")
def test_the_payload_of_every_family_is_json():
    for name in (*OWN, "lean", "fade"):
        counts = (2,) * len(Space.of(name).axes)
        assert json.loads(json.dumps(shown_on_page(made_up.shown(name, counts)), allow_nan=False))
