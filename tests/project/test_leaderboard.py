"""The leaderboard says what the records say, and of what still fails what a model answers there."""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace
from importlib import import_module as load
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from made_up_records import made_up_record, paper_recipe
from upright import Pose, warp
from upright.data import load_data
from upright.models import build_network
from upright.objective import LocNet
from upright.report.sections import fill_sections
from upright.sources import load_model
from upright.train import Pair, Recipe, train

ROOT = Path(__file__).parents[2]
SCORES = {"nat": 0.9, "grid-775": 0.7}


def test_the_page_says_what_the_records_say() -> None:
    board, page = load("leaderboard"), (ROOT / "docs" / "leaderboard.md").read_text()
    assert fill_sections(page, board.sections(*board.read_all(ROOT / "results"))) == page


def test_a_row_is_the_mean_over_seeds() -> None:
    recipe = paper_recipe("cifar10", "L2(rob, Wo-10)")
    values = [0.781, 0.785, 0.792]
    records = [
        made_up_record(replace(recipe, seed=seed), {"nat": 0.9, "grid-775": value})
        for seed, value in enumerate(values)
    ]
    finer = made_up_record(
        replace(recipe, seed=1), SCORES | {"grid-775": 0.785, "refine-1000": 0.75}
    )
    (row,) = load("leaderboard").ours("cifar10", [*records, replace(finer, finished=LATER)])
    mean, spread = 100 * statistics.fmean(values), 100 * statistics.stdev(values)
    assert row.accuracies == ("90.00 ± 0.00", f"{mean:.2f} ± {spread:.2f}", "75.00 (1 of them)")
    assert (row.seeds, row.recipe, row.training) == (
        3,
        "the paper's",
        ("400 (alone)", "made-up GPU"),
    )


def test_a_change_stands_beside_the_recipe_without_it() -> None:
    base = replace(paper_recipe("cifar10", "L2(rob, Wo-10)"), held_out=True, steps=100)
    recipes = {
        "none": [(base, 0.7), (replace(base, seed=1), 0.72)],
        "labels smoothed by 0.1": [(replace(base, smoothing=0.1), 0.6)],
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
    board, changes = load("leaderboard"), load("change_tables").changes
    elsewhere = replace(records[0], measured={"nat": 0.1, "grid-775": 0.1})
    lines = changes([*held_out, elsewhere], board._differences).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines[2:5]]
    assert [row[:5] for row in cells] == [
        ["none", "90.00", "71.00", "", "2"],
        ["`L2(rob, Wo-20)`", "90.00", "75.00", "+4.00", "1"],
        ["labels smoothed by 0.1", "90.00", "60.00", "-11.00", "1"],
    ]
    first, more = (float(row[5]) for row in cells[:2])
    passes = load("leaderboard")._size("resnet32", 10)[1] / 1e9
    assert more - first == pytest.approx(10 * passes, rel=0.02)  # ten more draws an image


LATER = "2001-01-01T00:00:00+00:00"


def test_only_whole_test_sets_by_the_papers_question_count() -> None:
    recipe = paper_recipe("cifar10", "std*")
    locnet = replace(recipe, objective=LocNet())
    oracle = Pair(locnet=locnet, classifier=recipe, oracle=True)
    part = {"test_images": "0" * 64, "test_labels": "0" * 64}
    records = [
        made_up_record(oracle, SCORES),
        made_up_record(replace(recipe, train_images=100), SCORES),
        made_up_record(recipe, SCORES, evaluation={"limit": 100}, data_digest=part, images=100),
        made_up_record(recipe, SCORES, evaluation={"sample": 100}, data_digest=part, images=100),
        made_up_record(recipe, SCORES, evaluation={"split": "held-out"}),
        made_up_record(recipe, SCORES, evaluation={"space": "shift(1px) rotate(10)"}),
        made_up_record(recipe, SCORES, evaluation={"weights": "bfloat16"}),
        made_up_record(recipe, {"nat": 0.9}),
    ]
    board = load("leaderboard")
    assert board.ours("cifar10", records) == []
    assert len(board.ours("cifar10", [*records, made_up_record(recipe, SCORES)])) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the paper's"),
        ({"objective": "L2(rob, Wo-10; λ=7)"}, "as the paper's"),
        ({"model": "gresnet44"}, "as the paper's"),
        (
            {"cosine": True, "average": 0.999},
            "learning rate along a cosine, weights averaged (0.999)",
        ),
        ({"smoothing": 0.1, "cutout": 8}, "labels smoothed by 0.1, cutout of 8 px"),
        ({"space": "shift(3.6px) rotate(36)"}, "searches `shift(3.6px) rotate(36)`"),
        ({"steps": 160_000, "seed": 3, "precision": "bfloat16"}, "160,000 steps"),
        ({"teacher": "runs/large"}, "taught by another network"),
    ],
)
def test_a_recipe_is_told_by_what_the_paper_does_otherwise(
    changes: dict[str, Any], words: str
) -> None:
    recipe = replace(paper_recipe("cifar10", "L2(rob, Wo-10)"), **changes)
    (row,) = load("leaderboard").ours("cifar10", [made_up_record(recipe, SCORES)])
    assert sorted(row.recipe.split(", ")) == sorted(words.split(", "))


def test_words_are_of_options_that_recipes_have() -> None:
    board = load("leaderboard")
    assert board.WORDS.keys() | board.UNTOLD <= Recipe().as_json().keys()


def test_the_best_of_each_network_stays_on_the_board() -> None:
    recipe = paper_recipe("svhn", "std*")
    records = [
        made_up_record(replace(recipe, objective=f"L2(rob, Wo-{tries})"), SCORES)
        for tries in range(2, 20)
    ]
    small = replace(recipe, model="resnet8x0.5")
    records += [made_up_record(small, {"nat": 0.5, "grid-775": 0.1})]
    text = load("leaderboard").leaderboard("svhn", records, rows=3)
    assert sum("(alone)" in line for line in text.splitlines()) == 4
    assert "`resnet8x0.5`" in text
    assert "4 of 19" in text


@pytest.mark.parametrize("model", ["resnet32", "resnet14x0.5", "stn10x0.25"])
def test_parameters_and_arithmetic_are_those_of_the_layers(model: str) -> None:
    network, counted = build_network(model), []

    def count(layer: nn.Module, _: Any, out: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        counted.append(2 * layer.weight[0].numel() * out.numel())

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    network.eval()(torch.zeros(1, 3, 32, 32))
    parameters = sum(each.numel() for each in network.parameters())
    assert load("leaderboard")._size(model, 10) == (parameters, sum(counted))


def test_what_the_paper_reports_is_its_best() -> None:
    path = ROOT / "src" / "upright" / "paper" / "invariance.csv"
    printed = list(csv.DictReader(path.read_text().splitlines()))
    for dataset, name in (("cifar10", "CIFAR-10"), ("svhn", "SVHN"), ("cifar100", "CIFAR-100")):
        scores = [
            float(row["mean"])
            for row in printed
            if (row["dataset"], row["metric"]) == (name, "grid-775")
            and "trick" not in row["method"]
            and (name, row["mean"]) != ("CIFAR-100", "78.89")  # printed by mistake
        ]
        first = load("leaderboard").theirs(dataset)[0]
        assert first.accuracies[1] == f"{max(scores):.2f}"


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
