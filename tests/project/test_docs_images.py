"""The pictures of the documentation can be drawn again, and each is shown on a page."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from markdown_code import PAGES, ROOT
from upright.attacks import ATTACKS
from upright.data.registry import DATA_SETS
from upright.models import NETWORKS, network_forms
from upright.objective.notation import REGULARIZERS
from upright.train import Recipe, train

IMAGES = ROOT / "docs" / "images"


def test_pictures_can_be_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network_forms()  # all that this package registers is there before it is kept
    monkeypatch.setattr(DATA_SETS, "_entries", dict(DATA_SETS._entries))
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
    monkeypatch.setattr(REGULARIZERS, "_entries", dict(REGULARIZERS._entries))
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for number, objective in ((0, "std"), (3, "std*")):
        recipe = Recipe(
            objective=objective, data="glyphs", train_images=8, model="convnet", steps=1, batch=8
        )
        train(recipe, tmp_path / f"run-{number}")
    with torch.random.fork_rng():
        draw = runpy.run_path(str(ROOT / "docs" / "draw_images.py"))["main"]
        draw(tmp_path, tmp_path, images=2)
    drawn = {file.name for file in tmp_path.iterdir() if file.is_file()}
    made_otherwise = {
        *("continuum.svg", "demo.png", "favicon.svg", "glyphs.png", "loss.svg", "report.png"),
        "photographs.png",
    }
    assert drawn == {file.name for file in IMAGES.iterdir()} - made_otherwise


def test_every_picture_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    pictures = [file.name for file in IMAGES.iterdir() if file.name != "favicon.svg"]
    assert pictures
    assert all(f"images/{name})" in pages for name in pictures)
