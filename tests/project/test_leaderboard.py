"""The leaderboard says what the records say, and of what still fails what a model answers there."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from importlib import import_module as load
from pathlib import Path

import pytest
import torch
from PIL import Image

from made_up_records import made_up_record, paper_recipe
from upright import Pose, evaluate, warp
from upright.data import load_data
from upright.ensemble import ensemble
from upright.models.size import network_size
from upright.report.sections import fill_sections
from upright.sources import load_model
from upright.train import Recipe, train

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_records_say() -> None:
    board, page = load("leaderboard"), (ROOT / "docs" / "leaderboard.md").read_text()
    assert fill_sections(page, board.sections(*board.read_all(ROOT / "results"))) == page


def test_a_change_stands_beside_the_recipe_without_it() -> None:
    base = replace(paper_recipe("cifar10", "L2(rob, Wo-10)"), held_out=True, steps=100)
    recipes = {
        "none": [(base, 0.7), (replace(base, seed=1), 0.72)],
        "labels smoothed by 0.1": [(replace(base, smoothing=0.1), 0.6)],
        "searches `shift(3.6px) rotate(36)`": [
            (replace(base, space="shift(3.6px) rotate(36)"), 0.5)
        ],
        "`L2(rob, Wo-20)`": [
            (replace(base, objective=paper_recipe("cifar10", "L2(rob, Wo-20)").objective), 0.75)
        ],
    }
    records = [
        made_up_record(recipe, {"nat": 0.9, "grid-775": worst})
        for its in recipes.values()
        for recipe, worst in its
    ]
    held_out = [replace(each, evaluation={"split": "held-out"}) for each in records]
    elsewhere = replace(records[0], measured={"nat": 0.1, "grid-775": 0.1})
    lines = load("change_tables").changes([*held_out, elsewhere]).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines[2:6]]
    assert [row[:5] for row in cells] == [
        ["none", "90.00", "71.00", "", "2"],
        ["`L2(rob, Wo-20)`", "90.00", "75.00", "+4.00", "1"],
        ["labels smoothed by 0.1", "90.00", "60.00", "-11.00", "1"],
        ["searches `shift(3.6px) rotate(36)`", "90.00", "50.00", "-21.00", "1"],
    ]
    first, more = (float(row[5]) for row in cells[:2])
    passes = network_size("resnet32", classes=10, shape=(3, 32, 32)).operations / 1e9
    assert more - first == pytest.approx(10 * passes, rel=0.02)  # ten more draws an image


def test_variants_share_a_table_and_other_networks_and_data_sets_have_their_own() -> None:
    base = replace(paper_recipe("cifar10", "L2(rob, Wo-10)"), held_out=True, steps=100)
    recipes = {
        base: 0.7,
        replace(base, cutout=8): 0.6,
        replace(base, model="resnet32-blur"): 0.55,
        replace(base, model="resnet8"): 0.5,
        replace(base, data="cifar100"): 0.4,
        replace(base, data="cifar100", mixup=0.3): 0.45,
    }
    records = [
        replace(
            made_up_record(recipe, {"nat": 0.9, "grid-775": worst}),
            evaluation={"split": "held-out"},
        )
        for recipe, worst in recipes.items()
    ]
    text = load("change_tables").changes(records)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if " | " in line]
    assert [(row[0], row[3]) for row in rows if row[0] not in ("change", "---")] == [
        *[("none", ""), ("cutout of 8 px", "-10.00"), ("`resnet32-blur`", "-15.00")],
        ("none", ""),
        *[("none", ""), ("mixup of up to 0.3", "+5.00")],
    ]
    assert [line.split(", ")[0] for line in text.splitlines() if line.startswith("Apart")] == [
        "Apart from that: CIFAR-10",
        "Apart from that: CIFAR-10",
        "Apart from that: CIFAR-100",
    ]


def test_what_fails_is_what_the_model_answers(tmp_path: Path) -> None:
    recipe = Recipe(
        objective="std",
        data="glyphs",
        train_images=800,
        model="convnet",
        steps=80,
        learning_rate=0.02,
        flips=False,
    )
    model = str(train(recipe, tmp_path / "run").path)
    kept, drawn = tmp_path / "kept" / "hardest.json", tmp_path / "sheet.png"
    asked = ["--model", model, "--data", "glyphs", "--attack", "grid-3x3x7", "--images", "60"]
    written = ["--json", str(kept), "--sheet", str(drawn), "--pictures", "6", "--keep", "5"]
    load("hardest").main([*asked, *written])
    found = load("hardest_tables").Hardest.read(kept)

    assert found.fooled == sum(each.images for each in found.confusions)
    assert found.fooled == sum(region.worst for region in found.regions)
    assert sum(region.poses for region in found.regions) == found.poses == 63
    wrong = sum(round(each.images * (1 - each.attacked)) for each in found.classes)
    assert wrong == found.wrong_unmoved + found.fooled
    assert len(found.pictures) == min(5, found.fooled) > 0
    network, data = load_model(model), load_data("glyphs", split="test", limit=60)
    for each in found.pictures:
        image = data.images[each.place : each.place + 1].float() / 255
        moved = warp(image, Pose(torch.tensor([each.pose])))
        natural, there = (network(its).softmax(1)[0].detach() for its in (image, moved))
        assert data.classes[int(natural.argmax())] == each.label
        assert data.classes[int(there.argmax())] == each.answer != each.label
        assert float(there.max()) == pytest.approx(each.confidence, abs=1e-3)
        assert 0 < each.smallest_size <= 1
        assert 1 <= each.fooling_poses <= 63
    text = load("hardest_tables").sections([found])["hardest"]
    assert f"{found.wrong_unmoved:,} images are wrong as they are" in text
    with Image.open(drawn) as picture:
        assert picture.width > picture.height > 100


def test_a_search_of_its_own_poses_is_refused(tmp_path: Path) -> None:
    asked = ["--model", "zoo:cifar10/std", "--data", "glyphs", "--images", "2"]
    with pytest.raises(SystemExit, match="name a grid"):
        load("hardest").main([*asked, "--attack", "wo-2", "--json", str(tmp_path / "no.json")])


def test_a_mean_is_held_against_how_many_of_its_members_are_wrong(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = torch.nn.functional.interpolate(torch.rand(200, 1, 6, 6), 24, mode="bilinear")
    alike = torch.randn(4, 36) / 3
    models = [
        torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(36, 4))
        for _ in range(3)
    ]
    for model in models:
        model[-1].weight.data = alike + torch.randn(4, 36) / 12
    labels = ensemble(*models)(images).argmax(1)
    runs = [tmp_path / name for name in ("mean", "a", "b", "c")]
    for run, model in zip(runs, (ensemble(*models), *models), strict=True):
        run.mkdir()
        state = run / "evaluation-0.safetensors"
        evaluate(model.eval(), (images, labels), attacks=["grid-3x3x3"], state=state)
    kept = tmp_path / "kept" / "members.json"
    asked = ["--data", "noise", "--attack", "grid-3x3x3", "--json", str(kept)]
    load("members").main(["--mean", str(runs[0]), "--members", *map(str, runs[1:]), *asked])
    found = load("members").Members.read(kept)

    grid = itertools.product((-3.0, 0.0, 3.0), (-3.0, 0.0, 3.0), (-30.0, 0.0, 30.0))
    moved = [warp(images, Pose(torch.tensor([pose]).expand(200, 3))) for pose in grid]
    logits = torch.stack([torch.stack([model(each) for model in models]) for each in moved])
    wrong = (logits.argmax(-1) != labels).any(0).sum(0)
    by_mean = (logits.mean(1).argmax(-1) != labels).any(0)
    assert found.wrong == [int((wrong == votes).sum()) for votes in range(4)]
    assert found.wrong_for_mean == [int((by_mean & (wrong == votes)).sum()) for votes in range(4)]
    assert all(found.wrong)
    assert "| in all | 200 |" in load("members").sections([found])["members"]


def test_a_mean_of_other_images_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2)).eval()
    runs = [tmp_path / name for name in ("mean", "member", "empty")]
    for run, labels in zip(runs, ([0, 1], [1, 1]), strict=False):
        run.mkdir()
        images = (torch.rand(2, 1, 8, 8), torch.tensor(labels))
        evaluate(model, images, attacks=["grid-1x1x3"], state=run / "evaluation-0.safetensors")
    compare = partial(load("members").compare, data="noise", attack="grid-1x1x3")
    with pytest.raises(SystemExit, match="other images"):
        compare(runs[0], [runs[1]])
    with pytest.raises(SystemExit, match="evaluate it first"):
        compare(runs[0], [runs[2]])
