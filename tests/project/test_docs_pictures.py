"""The pictures of the documentation can be drawn again, and each is shown on a page."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from markdown_code import PAGES, ROOT
from upright.attacks import base
from upright.data import registry as data_registry
from upright.models import registry
from upright.objective import notation
from upright.train import Recipe, train

IMAGES = ROOT / "docs" / "images"


def test_pictures_can_be_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.build_network("convnet")  # all that this package registers is there before it is kept
    monkeypatch.setattr(data_registry, "_entries", dict(data_registry._entries))
    monkeypatch.setattr(base, "_NAMES", list(base._NAMES))
    monkeypatch.setattr(notation, "_REGULARIZERS", dict(notation._REGULARIZERS))
    monkeypatch.setattr(registry, "_NETWORKS", list(registry._NETWORKS))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for number, objective in ((0, "std"), (3, "std*")):
        recipe = Recipe(
            objective=objective, data="glyphs", train_images=8, model="convnet", steps=1, batch=8
        )
        train(recipe, tmp_path / f"run-{number}")
    with torch.random.fork_rng():
        draw = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["main"]
        draw(tmp_path, tmp_path, images=2)
    drawn = {file.name for file in tmp_path.iterdir() if file.is_file()}
    made_otherwise = {"demo.png", "favicon.svg", "glyphs.png", "loss.svg", "report.png"}
    assert drawn == {file.name for file in IMAGES.iterdir()} - made_otherwise


def test_every_picture_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    pictures = [file.name for file in IMAGES.iterdir() if file.name != "favicon.svg"]
    assert pictures
    assert all(f"images/{name})" in pages for name in pictures)
