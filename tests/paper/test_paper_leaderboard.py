"""A leaderboard from made-up records: what stands on it, in which order, and what is left out."""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from made_up_records import made_up_record, paper_recipe
from upright.models import build_network
from upright.objective import LocNet
from upright.paper import INVARIANCE
from upright.paper.differences import UNTOLD
from upright.paper.leaderboard import leaderboard, leaderboards, measured_rows, reported_rows
from upright.records import Record, Reported
from upright.report.model import Estimate, Standing, TrainingTime
from upright.report.recipe_words import WORDS
from upright.train import Mean, Pair, Recipe
from upright.tta import Averaging

CSV = Path(__file__).parents[2] / "src" / "upright" / "paper" / "invariance.csv"
SCORES = {"nat": 0.9, "grid-775": 0.7}
LATER = "2001-01-01T00:00:00+00:00"


def ours(*records: Record, dataset: str = "cifar10") -> list[Standing]:
    return measured_rows(INVARIANCE, dataset, records)


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
    (row,) = ours(*records, replace(finer, finished=LATER))
    assert isinstance(row.attacked, Estimate)
    assert (row.attacked.mean, row.attacked.n, row.seeds) == (statistics.fmean(values), 3, 3)
    assert row.attacked.stderr == pytest.approx(statistics.stdev(values) / 3**0.5)
    assert row.natural is not None
    assert row.natural.mean == pytest.approx(0.9)
    assert row.finer is not None
    assert (row.finer.mean, row.finer.n) == (0.75, 1)
    assert (row.networks, row.method) == (("resnet32",), "L2(rob, Wo-10)")
    assert (row.recipe, row.source, row.caveat) == (("the paper's",), "", "")
    weights = build_network("resnet32").parameters()
    assert row.parameters == sum(each.numel() for each in weights)


@pytest.mark.parametrize(
    ("beside", "seconds", "counted", "words"),
    [
        ((1, 3, None), 100, (1,), "alone"),
        ((3, 5, 3), 200, (3, 5), "1 of 3 or 5 side by side"),
        ((3, None, 3), 200, (), "beside unknown"),
    ],
)
def test_the_time_is_that_of_runs_that_trained_alone_where_there_are_some(
    beside: tuple[int | None, ...], seconds: float, counted: tuple[int, ...], words: str
) -> None:
    recipe = paper_recipe("cifar10", "std*")
    records = [
        made_up_record(
            replace(recipe, seed=seed), SCORES, beside=count, train_seconds=100.0 * (seed + 1)
        )
        for seed, count in enumerate(beside)
    ]
    (row,) = ours(*records)
    assert row.training == TrainingTime(seconds=seconds, beside=counted, hardware="made-up GPU")
    assert row.training.sharing == words


def test_only_whole_test_sets_by_the_papers_question_count() -> None:
    recipe = paper_recipe("cifar10", "std*")
    locnet = replace(recipe, objective=LocNet())
    oracle = Pair(locnet=locnet, classifier=recipe, oracle=True)
    reflected = Pair(
        locnet=replace(locnet, objective=LocNet("reflection")), classifier=recipe, oracle=False
    )
    part = {"test_images": "0" * 64, "test_labels": "0" * 64}
    records = [
        made_up_record(oracle, SCORES),
        made_up_record(reflected, SCORES, evaluation={"fill": "reflection"}),
        made_up_record(replace(recipe, train_images=100), SCORES),
        made_up_record(recipe, SCORES, evaluation={"limit": 100}, data_digest=part, images=100),
        made_up_record(recipe, SCORES, evaluation={"sample": 100}, data_digest=part, images=100),
        made_up_record(recipe, SCORES, evaluation={"split": "held-out"}),
        made_up_record(recipe, SCORES, evaluation={"space": "shift(1px) rotate(10)"}),
        made_up_record(recipe, SCORES, evaluation={"weights": "bfloat16"}),
        made_up_record(recipe, {"nat": 0.9}),
        made_up_record(replace(recipe, data="glyphs"), SCORES),
    ]
    assert ours(*records) == []
    assert leaderboards(INVARIANCE, records) == ()
    measured = made_up_record(recipe, SCORES)
    assert len(ours(*records, measured)) == 1
    assert [board.name for board in leaderboards(INVARIANCE, [*records, measured])] == ["cifar10"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["the paper's"]),
        ({"objective": "L2(rob, Wo-10; λ=7)"}, ["as the paper's"]),
        ({"model": "gresnet44"}, ["as the paper's"]),
        (
            {"cosine": True, "average": 0.999},
            ["learning rate along a cosine", "weights averaged (0.999)"],
        ),
        ({"smoothing": 0.1, "cutout": 8}, ["labels smoothed by 0.1", "cutout of 8 px"]),
        ({"space": "shift(3.6px) rotate(36)"}, ["searches shift(3.6px) rotate(36)"]),
        ({"steps": 160_000, "seed": 3, "precision": "bfloat16"}, ["160,000 steps"]),
        ({"teacher": "runs/large"}, ["taught by runs/large"]),
        ({"objective": "AT(rob, Wo-10)", "batch": 128}, ["the paper's", "batches of 128"]),
    ],
)
def test_a_recipe_is_told_by_what_the_paper_does_otherwise(
    changes: dict[str, Any], words: list[str]
) -> None:
    recipe = replace(paper_recipe("cifar10", "L2(rob, Wo-10)"), **changes)
    (row,) = ours(made_up_record(recipe, SCORES))
    assert sorted(row.recipe) == sorted(words)


def test_words_are_of_options_that_recipes_have() -> None:
    assert WORDS.keys() | UNTOLD <= Recipe().as_json().keys()


def test_the_best_of_each_network_stays_on_the_board() -> None:
    recipe = paper_recipe("svhn", "std*")
    scores = {f"L2(rob, Wo-{tries})": 0.5 + tries / 100 for tries in range(2, 20)}
    records = [
        made_up_record(replace(recipe, objective=name), {"nat": 0.9, "grid-775": score})
        for name, score in scores.items()
    ]
    for worst in (0.2, 0.1):
        small = replace(recipe, model="resnet8x0.5", batch=round(640 * worst))
        records.append(made_up_record(small, {"nat": 0.5, "grid-775": worst}))
    board = leaderboard(INVARIANCE, "svhn", records, rows=3)
    measured = [row for row in board.rows if isinstance(row.attacked, Estimate)]
    assert [row.method for row in measured] == [*list(scores)[:-4:-1], "std*"]
    assert [row.networks for row in measured] == [("resnet32",)] * 3 + [("resnet8x0.5",)]
    assert measured[-1].attacked.mean == 0.2
    assert (board.measured, board.total[:7]) == (20, "4 of 20")


def test_what_is_reported_stands_between_what_was_measured() -> None:
    recipe = paper_recipe("cifar10", "std*")
    records = [
        made_up_record(replace(recipe, objective=name), {"nat": 0.9, "grid-775": score})
        for name, score in (("std", 0.01), ("std*", 0.99))
    ]
    board = leaderboard(INVARIANCE, "cifar10", records)
    first, *between, last = board.rows
    assert (first.method, last.method) == ("std*", "std")
    assert between == reported_rows(INVARIANCE, "cifar10")
    assert all(isinstance(row.attacked, Reported) for row in between)
    scores = [row.attacked.mean for row in board.rows]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("dataset", "name"), [("cifar10", "CIFAR-10"), ("svhn", "SVHN"), ("cifar100", "CIFAR-100")]
)
def test_what_the_paper_reports_is_its_best(dataset: str, name: str) -> None:
    scores = [
        float(row["mean"])
        for row in csv.DictReader(CSV.read_text().splitlines())
        if (row["dataset"], row["metric"]) == (name, "grid-775")
        and "trick" not in row["method"]
        and (name, row["mean"]) != ("CIFAR-100", "78.89")  # printed by mistake
    ]
    first, *_ = reported_rows(INVARIANCE, dataset)
    assert first.attacked.mean == pytest.approx(max(scores) / 100)
    assert (first.source, first.seeds, first.training) == ("Yang et al. 2019", 5, None)


def test_a_mean_counts_all_members_and_every_answer_over_sets_of_seeds() -> None:
    recipe = paper_recipe("cifar10", "std*")
    alone = made_up_record(recipe, {"nat": 0.9, "grid-775": 0.5})
    over = Averaging.parse("mirror")
    means = [
        Mean(members=tuple(replace(recipe, seed=seed) for seed in seeds), over=over)
        for seeds in ((0, 1, 2), (3, 4, 2), (2, 1, 0))  # the last again
    ]
    records = [made_up_record(mean, {"nat": 0.9, "grid-775": 0.6}) for mean in means]
    together, single = ours(alone, *records)
    assert (together.networks, together.seeds) == (("3 x resnet32",), 2)
    assert together.method == "mean(3 x std*; mirror)"
    assert together.recipe == ("as the paper's",)
    assert together.parameters == 3 * single.parameters
    assert together.operations == 6 * single.operations


def test_two_networks_count_together_and_own_code_is_not_run(tmp_path: Path) -> None:
    recipe = paper_recipe("cifar10", "std*")
    pair = Pair(locnet=replace(recipe, objective=LocNet()), classifier=recipe, oracle=False)
    code = tmp_path / "mine.py"
    code.write_text("raise SystemExit('was run')")
    own = replace(recipe, model=f"{code}:make")
    both, mine = ours(
        made_up_record(pair, {"nat": 0.9, "grid-775": 0.5}),
        made_up_record(own, {"nat": 0.9, "grid-775": 0.4}),
    )
    assert both.networks == ("resnet32", "resnet32")
    sizes = [
        sum(each.numel() for each in build_network("resnet32", classes=outputs).parameters())
        for outputs in (3, 10)  # of a pose, and of classes
    ]
    assert both.parameters == sum(sizes)
    assert (mine.parameters, mine.operations) == (None, None)
