"""The benchmark of searches of the continuum runs at a tiny size, and its truth is the lowest."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from made_up_records import made_up_record
from upright import PAPER, Space
from upright.record_files import append
from upright.train import Recipe, train

KINDS = {"random", "grid", "s-pgd", "refine", "refine+s-pgd"}


@pytest.fixture
def continuum() -> Any:
    return importlib.import_module("continuum")


PAGE = "".join(
    f"<!-- reproduce: {name} -->\n<!-- end -->\n"
    for name in ("continuum", "estimates", "speed", "training")
)


def test_every_attack_is_held_against_brute_force(continuum: Any, tmp_path: Path) -> None:
    recipe = Recipe(
        objective="std", data="glyphs", train_images=32, model="convnet", steps=20, batch=8
    )
    model = str(train(recipe, tmp_path / "run").path)
    spaces = ["shift(1px) rotate(5)", "zoom"]
    kept, page = tmp_path / "points.json", tmp_path / "page.md"
    options = ["--models", model, "--data", "glyphs", "--images", "12", "--json", str(kept)]
    sizes = ["--most", "20", "--truth", "25", "--at-once", "10"]
    continuum.main([*options, *sizes, "--spaces", spaces[0]])
    continuum.main([*options, *sizes, "--speed", "--spaces", *spaces])  # the first once more
    page.write_text(PAGE)
    measured = {"nat": 0.9, "grid-775": 0.7, "refine-1000": 0.6}
    trained = made_up_record(replace(recipe, objective="KL(rob, refine-10+rnd)", seed=3), measured)
    append(tmp_path / "records.jsonl", trained)
    show = [
        "--records",
        str(tmp_path / "records.jsonl"),
        "--markdown",
        str(page),
        "--figure",
        str(tmp_path),
    ]
    continuum.main(["--measured", str(kept), str(kept), *show])

    measured = continuum.Measured.read([kept])
    groups = importlib.import_module("continuum_tables").grouped(measured.points)
    assert [group[0].space for group in groups] == [str(Space.of(text)) for text in spaces]
    assert [speed.space for speed in measured.speeds] == [group[0].space for group in groups]
    for *found, truth in groups:
        assert {point.kind for point in found} == KINDS
        assert truth.kind == continuum.TRUTH
        assert truth.accuracy <= min(point.accuracy for point in found)
        assert all(point.spent <= 12 * point.passes for point in (*found, truth))
        for point in found:
            assert (point.estimate is not None) == point.kind.startswith("refine")
            if point.estimate is not None:
                assert point.estimate.accuracy <= point.accuracy
                assert 0 <= point.estimate.missed <= point.estimate.safe <= 12
                assert point.estimate.missed >= point.estimate.safe - 12 * truth.accuracy
    assert page.read_text().count("25 random poses") == len(groups)
    assert page.read_text().count("| refine-20+s-pgd |") == len(groups)
    assert "`KL(rob, refine-10+rnd)` | 3 | 90.00 | 70.00 | 60.00 |" in page.read_text()
    assert (tmp_path / "continuum.svg").exists()


def test_brute_force_draws_the_same_for_all_and_no_pose_twice(continuum: Any) -> None:
    rounds = continuum.BruteForce(25, 10).begin(PAPER, 7, generator=torch.Generator())
    drawn = []
    while (poses := rounds.propose()) is not None:
        drawn.append(poses.values)
    assert [tuple(part.shape) for part in drawn] == [(10, 1, 3), (10, 1, 3), (5, 1, 3)]
    assert len(torch.cat(drawn).unique(dim=0)) == 25


def test_nothing_fools_a_model_that_is_timed(continuum: Any) -> None:
    logits = 50 * torch.randn(100, 10, generator=torch.Generator().manual_seed(0))
    assert (continuum.Unfooled(lambda images: images)(logits).argmax(1) == 0).all()


def test_a_network_of_the_zoo_says_what_its_data_are(continuum: Any) -> None:
    assert continuum._data_of("zoo:svhn/std-star", None)[0] == "svhn"
    assert continuum._data_of("zoo:svhn/std-star", "glyphs")[0] == "glyphs"
    with pytest.raises(SystemExit, match="give --data"):
        continuum._data_of("runs/own", None)


@pytest.mark.parametrize("text", [str(PAPER), "shift rotate zoom brightness", "blur"])
def test_all_spaces_have_attacks_of_every_kind(continuum: Any, text: str) -> None:
    space = Space.of(text)
    found = list(continuum.attacks_on(space, 10_000))
    assert {kind for kind, _ in found} == KINDS
    for _, attack in found:
        attack.check_space(space)
        assert attack.passes_per_image <= 10_000
