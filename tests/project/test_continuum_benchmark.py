"""The benchmark of searches of the continuum runs at a tiny size, and its truth is the lowest."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from upright import PAPER, Space
from upright.train import Recipe, train

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def continuum(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("continuum")


def test_every_attack_is_held_against_brute_force(continuum: Any, tmp_path: Path) -> None:
    recipe = Recipe(
        objective="std", data="glyphs", train_images=32, model="convnet", steps=20, batch=8
    )
    model = str(train(recipe, tmp_path / "run").path)
    spaces = ["shift(1px) rotate(5)", "zoom"]
    kept, page = tmp_path / "points.json", tmp_path / "page.md"
    options = ["--models", model, "--spaces", *spaces, "--data", "glyphs", "--images", "12"]
    sizes = ["--most", "20", "--truth", "25", "--at-once", "10"]
    continuum.main([*options, *sizes, "--json", str(kept)])
    continuum.main(["--measured", str(kept), "--markdown", str(page), "--figure", str(tmp_path)])

    groups = continuum.grouped([continuum.Point(**each) for each in json.loads(kept.read_text())])
    assert [group[0].space for group in groups] == [str(Space.of(text)) for text in spaces]
    for *found, truth in groups:
        assert {point.kind for point in found} == {"random", "grid", "s-pgd", "refine"}
        assert truth.kind == continuum.TRUTH
        assert truth.accuracy <= min(point.accuracy for point in found)
        assert all(point.spent <= 12 * point.passes for point in (*found, truth))
    assert page.read_text().count("25 random poses") == len(groups)
    assert (tmp_path / "continuum.svg").exists()


@pytest.mark.parametrize("text", [str(PAPER), "shift rotate zoom brightness", "blur"])
def test_all_spaces_have_attacks_of_every_kind(continuum: Any, text: str) -> None:
    space = Space.of(text)
    found = list(continuum.attacks_on(space, 10_000))
    assert {kind for kind, _ in found} == {"random", "grid", "s-pgd", "refine"}
    for _, attack in found:
        attack.check_space(space)
        assert attack.passes_per_image <= 10_000
