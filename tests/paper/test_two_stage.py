"""The paper's STN+ in ``reproduce``: two networks together have records and cells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from made_up_records import made_up_record, paper_recipe
from tiny_sets import tiny
from upright import Pose, evaluate
from upright.cli import main
from upright.data import load_data, store
from upright.data.known import CIFAR10
from upright.evaluation import Oracle, Question
from upright.measure import FinishedRun, record_of
from upright.paper import INVARIANCE, paper_method, reported, wanted, with_reported
from upright.paper.cost import cost_of, timed
from upright.paper.missing import missing_tasks, undone
from upright.paper.needs import table_needs
from upright.paper.tables import fill_tables, select
from upright.record_files import RecordFolder, append, read
from upright.report.comparable import comparable, comparable_times
from upright.report.runs import group_runs
from upright.train import Pair
from upright.train.any_plan import plan_from_json
from upright.workers import Task
from upright.zoo import Card

CPU = torch.device("cpu")
GRID = {"nat": 0.9, "grid-775": 0.5}
FILLS = {"STN+(c)": "black", "STN+(r)": "reflection"}
METHODS = [f"{name} {variant}" for name in FILLS for variant in ("naive", "trick")]


def paper_pair(method="STN+(c) naive", dataset="cifar10", seed=0, batch=64):
    """The two recipes of a column, written down without the help of the plan."""
    name, variant = method.split()
    return Pair(
        locnet=paper_recipe(dataset, f"LocNet({FILLS[name]})", seed=seed),
        classifier=paper_recipe(dataset, "std*", seed=seed, batch=batch),
        oracle=variant == "trick",
    )


def pair_record(pair, **changes):
    asked = {"fill": pair.locnet.objective.fill} | changes.pop("evaluation", {})
    return made_up_record(pair, GRID, evaluation=asked, **changes)


def filled(records, method, dataset="cifar10", table="two-stage-eval"):
    (found,) = fill_tables(
        INVARIANCE,
        select(INVARIANCE, tables=[table], datasets=[dataset], methods=[method]),
        records,
    )
    return {row.metric: row.cells[0] for row in found.rows}


# --- which records fill which cells ---------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["cifar10", "svhn"])
@pytest.mark.parametrize("method", METHODS)
def test_a_column_is_a_locnet_before_std_of_both_batch_sizes(method, dataset):
    pairs = [paper_pair(method, dataset, batch=batch) for batch in (64, 128)]
    assert list(wanted(dataset, method)) == pairs
    assert paper_method(paper_pair(method, dataset, seed=3)) == method


@pytest.mark.parametrize("method", METHODS)
def test_a_record_of_a_pair_fills_its_own_column_and_no_other(method):
    record = pair_record(paper_pair(method, seed=2))
    for other in METHODS:
        measured = [cell.measured for cell in filled([record], other).values()]
        assert [each is not None for each in measured] == [other == method] * 2
    every = [
        cell
        for table in fill_tables(INVARIANCE, select(INVARIANCE), [record])
        for cell in table.cells
    ]
    assert sum(cell.measured is not None for cell in every) == 2
    assert undone(INVARIANCE, [Task(plan=paper_pair(method, seed=2))], [record]) == ()


def test_a_record_of_the_classifier_alone_fills_no_cell_of_the_pair():
    alone = made_up_record(paper_recipe("cifar10", "std*"), GRID)
    assert all(filled([alone], method)["nat"].measured is None for method in METHODS)
    needs = table_needs(
        INVARIANCE, select(INVARIANCE, tables=["two-stage-eval"], datasets=["cifar10"])
    )
    assert len(missing_tasks(INVARIANCE, needs, [alone], seeds=1)) == 8


@pytest.mark.parametrize("method", METHODS)
def test_a_pair_is_in_nothing_that_tells_of_its_classifier(method):
    pair = paper_pair(method)
    both = [made_up_record(pair.classifier, GRID), pair_record(pair)]
    assert comparable(both) == comparable_times(both) == timed(INVARIANCE, both) == (both[0],)
    assert comparable(both[1:]) == timed(INVARIANCE, both[1:]) == ()
    assert undone(INVARIANCE, [Task(plan=pair.classifier)], both[1:]) == (
        Task(plan=pair.classifier),
    )
    assert both[0].key != both[1].key
    with pytest.raises(ValueError, match="a recipe has no classifier, locnet, oracle"):
        Card(
            name="cifar10/std-star",
            classes=("a",),
            image_shape=(3, 32, 32),
            train_digest="",
            weights_digest="",
            records=(both[1],),
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"locnet": paper_recipe("cifar10", "LocNet(black)", seed=1)},
        {"locnet": paper_recipe("cifar10", "LocNet(black)", steps=800)},
        {"locnet": paper_recipe("cifar10", "LocNet(border)")},
        {"locnet": paper_recipe("svhn", "LocNet(black)")},
        {"classifier": paper_recipe("cifar10", "std")},
        {"classifier": paper_recipe("cifar10", "std*", steps=800)},
    ],
)
def test_another_pair_fills_no_cell(changes):
    record = pair_record(replace(paper_pair(), **changes), evaluation={"fill": "black"})
    assert filled([record], "STN+(c) naive")["nat"].measured is None


def test_the_attack_has_the_fill_of_the_locnet():
    for method in METHODS:
        for fill in ("black", "reflection", "border"):
            record = pair_record(paper_pair(method), evaluation={"fill": fill})
            fits = fill == FILLS[method.split()[0]]
            assert (filled([record], method)["nat"].measured is not None) == fits


def test_an_oracle_is_marked_and_never_the_best_of_its_row():
    naive, trick = (paper_pair(f"STN+(c) {variant}") for variant in ("naive", "trick"))
    records = [
        pair_record(naive, measured={"nat": 0.9, "grid-775": 0.4}),
        pair_record(trick, measured={"nat": 0.9, "grid-775": 0.8}),
    ]
    (table,) = fill_tables(
        INVARIANCE, select(INVARIANCE, tables=["two-stage-eval"], datasets=["cifar10"]), records
    )
    best = {
        column.title
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell.best
    }
    assert best == {"STN+(c) naive"}
    marked = [column.name for column in table.columns if column.title.endswith("(oracle)")]
    assert marked == ["STN+(c) trick", "STN+(r) trick"]
    (shown,) = group_runs(records)
    assert shown.method == "STN+(LocNet(black), std*)"


def test_seeds_of_a_pair_are_taken_together():
    records = [pair_record(paper_pair(seed=seed)) for seed in range(3)]
    (shown,) = group_runs(records)
    assert shown.measured["nat"].n == 3
    assert filled(records, "STN+(c) naive")["nat"].measured.n == 3


def test_a_column_can_be_asked_for_by_its_name():
    for name in ("STN+(c) naive", "STN+(c)naive"):
        (layout,) = select(INVARIANCE, methods=[name])
        assert layout.methods == ("STN+(c) naive",)


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_record_of_a_pair_names_both_recipes_and_is_read_as_it_was(tmp_path, method):
    pair = paper_pair(method)
    record = pair_record(pair)
    assert append(tmp_path / "records.jsonl", record, once=True)
    assert not append(tmp_path / "records.jsonl", record, once=True)
    assert read(tmp_path / "records.jsonl").records == (record,)
    assert plan_from_json(record.recipe) == pair
    assert record.of_several
    assert record.is_oracle == pair.oracle
    line = json.loads((tmp_path / "records.jsonl").read_text())
    assert line["recipe"]["locnet"] == pair.locnet.as_json()
    assert line["recipe"]["classifier"] == pair.classifier.as_json()


@pytest.mark.parametrize("method", METHODS)
def test_the_paper_s_number_stands_beside_a_pair_that_was_trained_on_the_same_data(
    tmp_path, monkeypatch, method
):
    small, pair = tiny(CIFAR10), paper_pair(method)
    monkeypatch.setattr(store, "KNOWN", {"cifar10": small.known})
    np.savez(tmp_path / "small.npz", **small.arrays)
    data = load_data(f"npz:{tmp_path / 'small.npz'}")
    model = Oracle(lambda x: Pose.zeros(len(x)), lambda x: x.flatten(1)[:, :10]).eval()
    asked = model if pair.oracle else model.classifier
    result = evaluate(asked, (data.images, data.labels), attacks=[])

    def stands_beside(recipe):
        record = record_of(
            FinishedRun(recipe, 1.0),
            result,
            data_name="cifar10",
            data=data,
            question=Question(fill=FILLS[method.split()[0]]),
            device=CPU,
        )
        return with_reported(record).reported

    assert stands_beside(pair) == {"nat": reported("cifar10", method, "nat")}
    for changes in ({"data": "svhn"}, {"steps": 9}):
        assert stands_beside(replace(pair, locnet=replace(pair.locnet, **changes))) == {}


def test_all_that_differs_in_a_pair_is_in_its_hash():
    pair = paper_pair()
    others = [
        replace(pair, oracle=True),
        replace(pair, locnet=replace(pair.locnet, seed=1)),
        replace(pair, classifier=replace(pair.classifier, seed=1)),
        pair.locnet,
        pair.classifier,
    ]
    assert len({each.hash for each in (pair, *others)}) == 6


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"classifier": None}, "not a pair of recipes"),
        ({"classifier": ...}, "not a pair of recipes: 'classifier'"),
        ({"locnet": 3}, "not a pair of recipes"),
        ({"locnet": {"steps": "many"}}, "steps is 'many'"),
        ({"locnet": paper_recipe("cifar10", "std").as_json()}, "std finds no poses"),
        ({"classifier": paper_recipe("cifar10", "LocNet(black)").as_json()}, "finds no classes"),
        ({"oracle": []}, "must be true or false"),
        ({"third": {}}, "not a pair of recipes"),
    ],
)
def test_what_is_no_pair_is_named_and_fills_nothing(damage, message):
    values = paper_pair().as_json() | damage
    values = {name: value for name, value in values.items() if value is not ...}
    with pytest.raises(ValueError, match=message):
        plan_from_json(values)
    record = pair_record(paper_pair(), recipe=values)
    assert filled([record], "STN+(c) naive")["nat"].measured is None


# --- how long it takes ----------------------------------------------------------------------------


def test_a_pair_takes_both_trainings_and_twice_the_evaluation():
    star = made_up_record(paper_recipe("cifar10", "std*"), GRID, train_seconds=160.0)
    task, pair = Task(plan=paper_pair()), paper_pair()
    cost = cost_of(task, [star], "made-up GPU")
    # A LocNet's step has as many passes as one of std*.
    assert (cost.train, cost.evaluate, cost.basis) == (320.0, 40.0, "extrapolated")
    assert cost_of(task, [star], "made-up GPU", train=[pair.locnet]).train == 160.0
    assert cost_of(task, [star], "made-up GPU", train=[]).train == 0.0


def test_a_dry_run_counts_every_run_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    RecordFolder(Path("results")).add(made_up_record(paper_recipe("cifar10", "std*"), GRID))
    monkeypatch.setattr("upright.record_files.CHECKOUT", tmp_path)  # no records of ours
    options = ["--table", "two-stage-eval", "--dataset", "cifar10", "--seeds", "2"]
    assert main(["reproduce", "--dry-run", "--device", "cpu", *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "8 runs missing, for 16 evaluations: " in text
    assert "STN+(LocNet(black), std*) oracle on cifar10, batch 128 2 0-1 grid-775" in text
    # Six runs of 400 s, two of twice that with 128 images a step, and 16 times twice 20 s: 4,640 s.
    assert ": 1 h 17 min on made-up GPU" in text


@pytest.mark.parametrize(
    ("dataset", "metric", "percents"),
    [
        ("svhn", "nat", (94.92, 94.92, 95.51, 95.51)),
        ("svhn", "grid-775", (64.91, 90.95, 59.68, 90.28)),
        ("cifar10", "nat", (91.29, 91.29, 90.99, 90.99)),
        ("cifar10", "grid-775", (44.88, 83.05, 42.84, 84.31)),
    ],
)
def test_the_paper_s_numbers_are_those_of_its_table(dataset, metric, percents):
    for method, percent in zip(METHODS, percents, strict=True):
        number = reported(dataset, method, metric)
        assert (number.table, number.stderr) == ("two-stage-eval", None)
        assert number.mean == pytest.approx(percent / 100)
