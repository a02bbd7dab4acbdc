"""A headless Chromium for tests of the report's page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PHONE = (360, 740)
DESKTOP = (1280, 900)


def _program(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        reason = f"no {names[0]} on this machine; on Debian: apt-get install chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """Start a browser; where there is none the test is skipped, but fails under CI."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
    # Containers have neither a sandbox for root nor much shared memory.
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(_program("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def set_size(driver: webdriver.Chrome, size: tuple[int, int]) -> None:
    """Set the size of the page, which a window cannot make as small as a phone."""
    width, height = size
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """Let the system prefer ``light`` or ``dark``, and no motion, for which a test would wait."""
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    # The page is told with the next frame.
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
