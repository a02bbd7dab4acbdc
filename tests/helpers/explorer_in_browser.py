"""What the report's explorer shows in a browser, and what saved arrays say that it should."""

from __future__ import annotations

import math

import numpy as np
import torch
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from browser import DESKTOP, prefer, set_size
from upright import Pose, warp


def open_page(driver, address):
    """Open a page anew at its first image, on a desktop in the light."""
    set_size(driver, DESKTOP)
    prefer(driver, "light")
    driver.get(address)
    # Photographs are decoded first.
    first = (By.CSS_SELECTOR, "#thumbs button")
    WebDriverWait(driver, 20).until(presence_of_element_located(first)).click()


def find(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def all_texts(page, selector):
    return [found.text for found in page.find_elements(By.CSS_SELECTOR, selector)]


def nearest(axis, value):
    return int(np.abs(axis - value).argmin())


def answers_at(saved, image, **pose):
    """What every model answers at the saved pose that is nearest, as its card puts it."""
    shown = saved.shown
    place = (image, *(nearest(axis, pose.get(name, 0)) for name, axis in shown.grid.items()))
    texts = []
    for model in saved.models:
        seen = model.predicted[place]
        mark = "✓ right" if seen == shown.labels[image] else "✗ wrong"
        sure = math.floor(100 * int(model.confidence[place]) / 255 + 0.5)
        texts.append((shown.classes[seen], mark, f"{sure} % sure"))
    return texts


def answers_shown(page):
    return [
        (find(card, ".seen b").text, find(card, ".verdict").text, find(card, ".sure").text)
        for card in page.find_elements(By.CSS_SELECTOR, ".card")
    ]


def press(element, *keys):
    for key in keys:
        element.send_keys(key)


def set_slider(page, name, value):
    page.execute_script(
        "const s = document.getElementById(`axis-${arguments[0]}`); s.value = arguments[1];"
        "s.dispatchEvent(new Event('input'));",
        name,
        value,
    )


def drawn(page):
    """The pixels of the picture: red, green and blue, H x W x 3."""
    size, values = page.execute_script(
        "const c = document.getElementById('picture');"
        "const p = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return [[c.height, c.width], [...p.data]]"
    )
    pixels = np.array(values).reshape(*size, 4)
    assert (pixels[..., 3] == 255).all()
    return pixels[..., :3]


def pose_of_sliders(page, shown):
    """The pose that the sliders are at, in float64."""
    sliders = [find(page, f"#axis-{name}") for name in shown.grid]
    values = [float(slider.get_attribute("value")) for slider in sliders]
    return Pose(torch.tensor([values], dtype=torch.float64), shown.space.chain)


def warped(shown, pose):
    """The first image at a pose, as ``drawn`` gives it, but exact."""
    image = torch.as_tensor(shown.images[:1]).double() / 255
    return 255 * warp(image, pose)[0].permute(1, 2, 0).numpy()
