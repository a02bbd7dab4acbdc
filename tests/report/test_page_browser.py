"""The report in a real browser: what it shows is what records and saved arrays say."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import made_up_report as made_up
from browser import DESKTOP, PHONE, chromium, prefer, set_size
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
from upright.report.page import read_contents, write_report
from upright.report.saved import read_saved, write_saved


@pytest.fixture(scope="module")
def driver():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(made_up_results):
    return (made_up_results / "report" / "index.html").as_uri()


@pytest.fixture
def page(driver, address):
    """A page that was just opened, at its first image; its console stays empty."""
    open_page(driver, address)
    yield driver
    assert driver.get_log("browser") == []


@pytest.fixture(scope="module")
def saved(made_up_results):
    return read_saved(made_up_results / "saved")


def test_the_page_needs_no_network(page):
    assert page.execute_script("return performance.getEntriesByType('resource')") == []
    assert "How far" in find(page, "h1").text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grid-775", lambda record: record.measured["grid-775"]),
        ("training", lambda record: record.train_seconds),
    ],
)
def test_a_click_on_a_heading_sorts_by_its_numbers_and_another_turns_it_round(page, name, value):
    numbers = {}
    for record in made_up.RECORDS:
        numbers.setdefault(record.method, []).append(value(record))
    headings = page.find_elements(By.CSS_SELECTOR, "#table-methods thead button")
    (heading,) = (button for button in headings if button.text.startswith(name))
    heading.click()
    order = [np.mean(numbers[method]) for method in all_texts(page, "#table-methods tbody th")]
    assert order == sorted(order, reverse=True)
    assert len(order) == len(numbers)
    heading.send_keys(Keys.ENTER)
    order = [np.mean(numbers[method]) for method in all_texts(page, "#table-methods tbody th")]
    assert order == sorted(order)
    sorted_by = page.find_elements(By.CSS_SELECTOR, "#table-methods [aria-sort]")
    assert [cell.get_attribute("aria-sort") for cell in sorted_by] == ["ascending"]


def test_every_number_of_the_methods_leads_to_its_record(page):
    links = page.find_elements(By.CSS_SELECTOR, "#table-methods a, .card .scores a")
    targets = {link.get_attribute("href").partition("#")[2] for link in links}
    rows = page.find_elements(By.CSS_SELECTOR, "#table-records tbody tr")
    assert len(rows) == len(made_up.RECORDS)
    assert targets <= {row.get_attribute("id") for row in rows}
    assert len(targets) == len({record.method for record in made_up.RECORDS})


def test_cards_show_the_saved_answer_of_every_image_as_it_is(page, saved):
    thumbs = page.find_elements(By.CSS_SELECTOR, "#thumbs button")
    assert len(thumbs) == len(saved.shown.images)
    for image, thumb in enumerate(thumbs):
        thumb.click()
        assert answers_shown(page) == answers_at(saved, image)
        label = saved.shown.classes[saved.shown.labels[image]]
        assert find(page, "#truth b").text == label


def test_a_drag_shifts_the_image_and_shows_the_answers_of_the_nearest_saved_pose(page, saved):
    page.find_elements(By.CSS_SELECTOR, "#thumbs button")[2].click()
    picture = find(page, "#picture")
    scale = picture.size["width"] / saved.shown.images.shape[-1]
    right, down = round(1.8 * scale), round(-1.4 * scale)
    before = answers_shown(page)
    ActionChains(page).drag_and_drop_by_offset(picture, right, down).perform()
    expected = answers_at(saved, 2, dx=right / scale, dy=down / scale)
    assert answers_shown(page) == expected != before
    assert "2 px right, 1.5 px up" in find(page, "#pose").text


def test_the_knob_turns_the_image_counter_clockwise_to_the_left(page, saved):
    knob = find(page, ".knob")
    radius = picture_centre(page)["y"] - centre(knob)["y"]
    turn = math.radians(20)
    left, down = round(-radius * math.sin(turn)), round(radius * (1 - math.cos(turn)))
    ActionChains(page).drag_and_drop_by_offset(knob, left, down).perform()
    assert find(page, "#pose").text == "Shown, and answered: 20° counter-clockwise."
    assert answers_shown(page) == answers_at(saved, 0, angle=20)


def centre(element):
    box = element.rect
    return {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}


def picture_centre(page):
    return centre(find(page, "#picture"))


def test_keys_on_the_picture_step_from_pose_to_pose(page, saved):
    picture = find(page, "#picture")
    press(picture, Keys.ARROW_LEFT, Keys.ARROW_DOWN, Keys.ARROW_DOWN, ",", ",", ".")
    assert answers_shown(page) == answers_at(saved, 0, dx=-2, dy=3, angle=10)
    assert find(page, "#pose").text.endswith("10° counter-clockwise, 2 px left, 3 px down.")
    press(picture, *[Keys.ARROW_LEFT] * 3)  # stops at the edge of the grid
    assert answers_shown(page) == answers_at(saved, 0, dx=-2, dy=3, angle=10)
    press(picture, Keys.HOME)
    assert answers_shown(page) == answers_at(saved, 0)


def test_all_controls_are_reached_with_the_keyboard_and_have_names(page):
    wanted = page.find_elements(By.CSS_SELECTOR, "button, input, canvas[tabindex], #chart .mark")
    nameless = [each.get_attribute("outerHTML") for each in wanted if not each.accessible_name]
    assert nameless == []
    page.execute_script("document.querySelector('.brand').focus()")
    reached = set()
    while (active := page.switch_to.active_element).tag_name != "body":
        reached.add(active)
        ActionChains(page).send_keys(Keys.TAB).perform()
    assert reached >= set(wanted)


@pytest.mark.parametrize("pose", [(0, 0, 0), (2, -3, 0), (0, 0, 30), (-1.3, 0.7, -17.4)])
def test_the_picture_is_resampled_as_the_models_inputs_are(page, saved, pose):
    find(page, "#snap").click()
    for name, value in zip(("dx", "dy", "angle"), pose, strict=True):
        set_slider(page, name, value)
    exact = pose_of_sliders(page, saved.shown)
    assert exact.values[0].tolist() == pytest.approx(pose, abs=0.2)  # a slider has steps
    assert drawn(page) == pytest.approx(warped(saved.shown, exact), abs=0.51)


def test_between_saved_poses_the_page_says_whose_answer_it_shows(page, saved):
    find(page, "#snap").click()
    set_slider(page, "angle", 13)
    assert find(page, "#pose").text == (
        "Shown: 12.9° counter-clockwise. The answers are those of the nearest saved pose: "
        "10° counter-clockwise."
    )
    assert answers_shown(page) == answers_at(saved, 0, angle=10)


def test_the_map_leads_to_the_pose_that_is_clicked_and_to_the_worst_one(page, saved):
    shown = saved.shown
    for number, model in enumerate(saved.models):
        card = page.find_elements(By.CSS_SELECTOR, ".card")[number]
        right = int((model.predicted[0] == shown.labels[0]).sum())
        assert find(card, ".tally").text.startswith(
            f"As it is: {shown.classes[model.natural[0]]}. Right at {right} of 105 poses. Worst: "
        )
        find(card, ".tally button").click()
        places = np.unravel_index(model.worst[0], model.predicted.shape[1:])
        axes = zip(shown.grid.items(), places, strict=True)
        worst = {name: axis[at] for (name, axis), at in axes}
        assert answers_shown(page) == answers_at(saved, 0, **worst)
    canvas = page.find_elements(By.CSS_SELECTOR, ".map")[0]
    width = canvas.size["width"]
    # The last column, three pixels into the first band: the largest angle, dy and dx lowest.
    ActionChains(page).move_to_element_with_offset(
        canvas, width // 2 - 8, 10 - canvas.size["height"] // 2
    ).click().perform()
    assert answers_shown(page) == answers_at(saved, 0, dx=-2, dy=-3, angle=30)
    assert "30° counter-clockwise, 2 px left, 3 px up" in find(page, "#tip").text


def test_a_card_leads_to_the_smallest_pose_that_fools_its_model(page, saved):
    """The smallest box that holds a wrong answer is found by a loop over the places of the grid."""
    shown, model, card = saved.shown, saved.models[0], find(page, ".card")
    reaches = {"dx": 2, "dy": 3, "angle": 30}
    for image, thumb in enumerate(page.find_elements(By.CSS_SELECTOR, "#thumbs button")):
        thumb.click()
        find(card, ".tally span button").click()
        sizes = {}
        for places in np.argwhere(model.predicted[image] != shown.labels[image]):
            axes = zip(shown.grid.items(), places, strict=True)
            pose = {name: float(axis[at]) for (name, axis), at in axes}
            parts = [abs(pose[name]) / reach for name, reach in reaches.items()]
            sizes[tuple(pose.values())] = (round(max(parts), 6), round(math.hypot(*parts), 5))
        smallest = [pose for pose, size in sizes.items() if size == min(sizes.values())]
        here = tuple(pose_of_sliders(page, shown).values[0].tolist())
        assert any(here == pytest.approx(pose, abs=1e-4) for pose in smallest)
        assert answers_shown(page)[0][1] == "✗ wrong"


def test_a_model_that_nothing_fools_has_no_smallest_pose(driver, tmp_path):
    shown = made_up.shown()
    write_saved(tmp_path / "saved", shown, made_up.model(shown, "sure", errs=0.0))
    write_report(read_contents(tmp_path), tmp_path)
    open_page(driver, (tmp_path / "index.html").as_uri())
    assert "Smallest" not in find(driver, ".card .tally").text
    assert driver.get_log("browser") == []


def test_the_map_is_drawn_in_the_colours_of_right_and_wrong(page, saved):
    """One pixel in each cell of the first model's map, found by the layout that the page states."""
    shown, model = saved.shown, saved.models[0]
    boxes = page.execute_script(
        "const c = document.querySelector('.map'), p = c.getContext('2d');"
        "return [c.width, c.height, [...p.getImageData(0, 0, c.width, c.height).data]]"
    )
    width, height, values = boxes
    pixels = np.array(values).reshape(height, width, 4)
    colours = {name: colour_of(page, f".legend .{name}") for name in ("right", "wrong")}
    wrong = (pixels[..., :3] == colours["wrong"]).all(-1).sum()
    right = (pixels[..., :3] == colours["right"]).all(-1).sum()
    share = float((model.predicted[0] != shown.labels[0]).mean())
    assert wrong / (wrong + right) == pytest.approx(share, abs=0.05)  # marks cover a few


def colour_of(page, selector):
    text = find(page, selector).value_of_css_property("background-color")
    return [int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3]]


def test_models_are_chosen_side_by_side(page, saved):
    assert all_texts(page, ".card .title") == ["KL(rob, Wo-10)", "std"]
    page.find_elements(By.CSS_SELECTOR, "#models input")[0].click()
    assert all_texts(page, ".card .title") == ["std"]
    assert answers_shown(page) == answers_at(saved, 0)[1:]


def test_a_method_of_the_chart_is_named_on_hover_and_on_focus(page):
    marks = page.find_elements(By.CSS_SELECTOR, "#chart .mark")
    assert len(marks) == len({record.method for record in made_up.RECORDS})
    for mark in (marks[0], marks[-1]):
        method = mark.accessible_name.partition("; grid-775")[0]
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
        ActionChains(page).move_to_element(mark).perform()
        assert find(page, "#tip").text.splitlines()[0] == method
        ActionChains(page).move_to_element(find(page, "#runtime-title")).perform()
        assert not find(page, "#tip").is_displayed()
        page.execute_script("arguments[0].focus()", mark)
        assert find(page, "#tip").text.splitlines()[0] == method
        ActionChains(page).send_keys(Keys.ESCAPE).perform()
        assert not find(page, "#tip").is_displayed()


def test_colours_follow_the_system_until_the_button_is_pressed(page):
    paper = {}
    for scheme in ("light", "dark"):
        prefer(page, scheme)
        paper[scheme] = find(page, "body").value_of_css_property("background-color")
    assert paper["light"] != paper["dark"]
    assert find(page, "#theme").text == "Light"
    find(page, "#theme").click()
    assert find(page, "body").value_of_css_property("background-color") == paper["light"]
    page.execute_script("localStorage.clear()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_people_need(page, scheme):
    """4.5 to 1, which the W3C asks of normal text."""
    prefer(page, scheme)
    for selector in ("body", ".lead", ".note", ".scores", ".verdict", "thead button", "tbody th a"):
        element = find(page, selector)
        ink, paper = page.execute_script(
            "let e = arguments[0]; const ink = getComputedStyle(e).color;"
            "while (getComputedStyle(e).backgroundColor.endsWith(', 0)')) e = e.parentElement;"
            "return [ink, getComputedStyle(e).backgroundColor]",
            element,
        )
        high, low = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (selector, ink, paper)


def luminance(colour):
    parts = json.loads("[" + colour[colour.index("(") + 1 : -1] + "]")[:3]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in np.divide(parts, 255)
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page, saved):
    set_size(page, PHONE)
    page.refresh()
    assert page.execute_script("return document.documentElement.scrollWidth") == PHONE[0]
    assert page.execute_script("return document.body.scrollWidth") == PHONE[0]
    for card in page.find_elements(By.CSS_SELECTOR, ".card"):
        assert card.rect["x"] >= 0
        assert card.rect["x"] + card.rect["width"] <= PHONE[0]
    find(page, "#thumbs button").click()
    press(find(page, "#picture"), Keys.ARROW_RIGHT)
    assert answers_shown(page) == answers_at(saved, 0, dx=2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("height", "width"), [(8, 16), (16, 8)])
def test_black_around_an_image_that_is_not_square_is_what_the_pose_uncovers(
    driver, tmp_path, height, width, scheme
):
    square = made_up.shown(side=6)
    white = np.full((7, 3, height, width), 255, np.uint8)
    shown = replace(square, images=white)
    write_saved(tmp_path / "saved", shown, made_up.model(shown, "mine"))
    write_report(read_contents(tmp_path), tmp_path)
    set_size(driver, DESKTOP)
    prefer(driver, scheme)
    driver.get((tmp_path / "index.html").as_uri())
    driver.execute_script("arguments[0].scrollIntoView()", find(driver, "#stage"))
    picture, stage = find(driver, "#picture").rect, find(driver, "#stage").rect
    assert picture["width"] / picture["height"] == pytest.approx(width / height, rel=0.02)
    with Image.open(io.BytesIO(find(driver, "#stage").screenshot_as_png)) as shot:
        pixels = np.asarray(shot.convert("L"))
    # The image as it is uncovers nothing: around it is the page, and a line between the two.
    assert pixels[:, : int(picture["x"] - stage["x"]) - 2].min() > 10
    # As far as the pointer moves, so far the picture moves.
    find(driver, "#snap").click()
    far = picture["width"] / width
    ActionChains(driver).drag_and_drop_by_offset(find(driver, "#picture"), far, far).perform()
    moved = [float(text.split()[0]) for text in all_texts(driver, "#sliders output")[1:]]
    assert moved == pytest.approx([1, 1], abs=0.5 / far)  # a pointer moves by whole pixels
