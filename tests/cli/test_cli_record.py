"""``upright evaluate RUN --record FILE``: a line for each evaluation of a run."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import upright
from cheap_compiler import compiled_cheaply
from rigid_spaces import rigid
from tiny_sets import shuffled, tiny
from upright import evaluate, origin
from upright.cli import main
from upright.data import load_data, store
from upright.data.known import CIFAR10
from upright.data.raw import RawSplit, split_digests
from upright.evaluation import examine
from upright.measure import measured
from upright.origin import origin_on
from upright.paper import cells, reported
from upright.record_files import read
from upright.sources import load_model
from upright.train import Recipe, RunDirectory, train

OPTIONS = ["--attack", "grid-3x3x3", "--attack", "wo-2", "--limit", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = Recipe(
        objective="KL(rob,Wo-2)", data="glyphs", train_images=32, model="convnet", steps=3, batch=4
    )
    return train(recipe, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def upright_evaluate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(model: object, *options: str, data: str = "glyphs") -> tuple[int, str]:
        command = ["evaluate", str(model), "--data", data, "--record", "out/records.jsonl"]
        code = main([*command, *options])
        return code, capsys.readouterr().err

    return call


def recorded(path: str = "out/records.jsonl"):
    found = read(path)
    assert found.damaged == ()
    return found.records


def test_a_record_has_what_was_measured_and_what_it_takes_to_measure_it_again(
    run, upright_evaluate
):
    began = datetime.now(UTC)
    assert upright_evaluate(run.path, *OPTIONS, "--json", "result.json") == (0, "")
    (record,) = recorded()
    data = load_data("glyphs", limit=8)
    direct = evaluate(
        load_model(str(run.path)),
        (data.images, data.labels),
        attacks=["grid-3x3x3", "wo-2"],
        only_accuracy=True,
    )
    result = json.loads(Path("result.json").read_text())
    assert record.measured == {
        "nat": direct.natural_accuracy,
        "grid-3x3x3": direct.attacks["grid-3x3x3"].accuracy,
        "wo-2": direct.attacks["wo-2"].accuracy,
    }
    passes = sum(attack.forward_passes for attack in direct.attacks.values())
    assert (record.images, record.forward_passes) == (8, 8 + passes)
    assert (record.dataset, record.method, record.model) == ("glyphs", "KL(rob, Wo-2)", "convnet")
    assert Recipe.from_json(record.recipe) == run.recipe
    assert (record.recipe_hash, record.seed, record.steps) == (run.recipe.hash, 0, 3)
    assert record.evaluation["space"] == result["space"]
    assert record.evaluation["limit"] == 8
    assert record.data_digest == split_digests(
        "test", RawSplit(data.images.numpy(), data.labels.numpy())
    )
    assert record.reported == {}
    assert record.versions == result["versions"]
    assert record.versions["torch"] == torch.__version__
    assert record.versions["upright"] == upright.__version__
    assert record.evaluate_seconds == pytest.approx(result["seconds"], abs=1e-3)
    finished = datetime.fromisoformat(record.finished)
    assert began - timedelta(seconds=1) <= finished <= datetime.now(UTC)


def test_a_compiled_network_has_the_same_accuracies_and_a_record_of_its_own(run, upright_evaluate):
    with compiled_cheaply(side=32) as compiler:
        assert upright_evaluate(run.path, *OPTIONS) == (0, "")
        assert compiler.sizes == []
        assert upright_evaluate(run.path, *OPTIONS, "--compile") == (0, "")
    assert 0 < len(compiler.sizes) <= 2
    plain, compiled = recorded()
    assert compiled.measured == plain.measured
    assert compiled.evaluation == plain.evaluation | {"compile": True}


def test_training_seconds_are_those_of_the_last_checkpoint(run, upright_evaluate):
    assert upright_evaluate(run.path, *OPTIONS) == (0, "")
    (record,) = recorded()
    assert 0 < record.train_seconds == RunDirectory.open(run.path).load().seconds <= run.seconds


def test_a_record_says_what_trained_and_beside_how_many(run, upright_evaluate):
    assert upright_evaluate(run.path, *OPTIONS) == (0, "")
    (record,) = recorded()
    checkpoint = RunDirectory.open(run.path).load()
    assert record.beside == checkpoint.beside == 1
    assert record.trained_by == checkpoint.trained_by == (origin_on("cpu"),)


@pytest.fixture
def _commit_not_asked_yet():
    origin.commit.cache_clear()
    yield
    origin.commit.cache_clear()


@pytest.mark.usefixtures("_commit_not_asked_yet")
def test_the_commit_is_asked_for_before_the_work(run, upright_evaluate, monkeypatch):
    asked = []

    def noted(*args, **options):
        asked.append("evaluation")
        return examine(*args, **options)

    monkeypatch.setattr(origin, "commit_of", lambda _package: asked.append("commit") or "abc")
    monkeypatch.setattr(measured, "examine", noted)
    assert upright_evaluate(run.path, *OPTIONS) == (0, "")
    assert asked == ["commit", "evaluation"]
    assert recorded()[0].commit == "abc"


def test_records_of_one_question_share_a_key(run, upright_evaluate):
    for options in (OPTIONS, OPTIONS, [*OPTIONS, "--fill", "border"], [*OPTIONS, "--limit", "9"]):
        assert upright_evaluate(run.path, *options) == (0, "")
    first, again, filled, more = (record.key for record in recorded())
    assert first == again
    assert len({first, filled, more}) == 3


def test_records_say_what_counts_as_right_where_it_is_not_what_it_always_was(run, upright_evaluate):
    for options in ([], ["--top", "2"], ["--include-identity"]):
        assert upright_evaluate(run.path, *OPTIONS, *options) == (0, "")
    plain, top, identity = (record.evaluation for record in recorded())
    assert plain.keys() == {
        "space",
        "split",
        "limit",
        "resize",
        "center_crop",
        "fill",
        "interpolation",
        "canvas",
        "precision",
        "seed",
    }
    assert top == plain | {"top": 2}
    assert identity == plain | {"include_identity": True}


def test_a_result_that_cannot_be_printed_is_kept(run, upright_evaluate, monkeypatch):
    closed = io.StringIO()
    monkeypatch.setattr(closed, "write", Mock(side_effect=BrokenPipeError(32, "Broken pipe")))
    monkeypatch.setattr(sys, "stdout", closed)
    code, _ = upright_evaluate(run.path, *OPTIONS, "--json", "result.json")
    assert code == 2
    assert len(recorded()) == 1
    assert Path("result.json").exists()


def test_an_evaluation_with_a_state_has_one_record_however_often_it_is_continued(
    run, upright_evaluate
):
    for options in (OPTIONS, OPTIONS, [*OPTIONS[:2], "--limit", "8"]):
        state = f"{len(options)}.state"
        assert upright_evaluate(run.path, *options, "--state", state) == (0, "")
    assert [sorted(record.measured) for record in recorded()] == [
        ["grid-3x3x3", "nat", "wo-2"],
        ["grid-3x3x3", "nat"],
    ]


@pytest.mark.parametrize(
    ("changes", "options", "metrics"),
    [
        ({}, [], {"nat"}),
        ({"seed": 1}, [], {"nat"}),
        ({"steps": 2}, [], set()),
        ({"batch": 3}, [], set()),
        ({}, ["--limit", "3"], set()),
        ({}, ["--fill", "border"], set()),
        ({}, ["--fill", "#7f7f7f"], set()),
        ({}, ["--top", "2"], set()),
        ({}, ["--include-identity"], set()),
        ({}, ["--max-rotation", "20"], set()),
        ({}, ["--split", "train"], set()),
        ({"model": "convnet"}, [], set()),
        ({"data": "glyphs", "train_images": 8}, [], set()),
        ({"space": rigid(3, 20)}, [], set()),
    ],
)
def test_the_paper_s_accuracy_stands_beside_one_that_was_measured_as_in_the_paper(
    tmp_path, monkeypatch, upright_evaluate, changes, options, metrics
):
    small = tiny(CIFAR10)
    monkeypatch.setattr(store, "KNOWN", {"cifar10": small.known})
    np.savez(tmp_path / "small.npz", **small.arrays)
    # The paper's own recipe would take hours: here this one is the paper's.
    paper = Recipe(objective="AT(rob, Wo-10)", data="cifar10", steps=1, batch=2)
    monkeypatch.setattr(cells, "_methods", lambda _: {paper: "AT(rob,Wo-10)"})
    train(replace(paper, **{"data": "npz:small.npz", **changes}), "run")
    code, _ = upright_evaluate("run", "--attack", "wo-2", *options, data="npz:small.npz")
    (record,) = recorded()
    assert code == 0
    assert record.dataset == ("npz:small.npz" if "--limit" in options else "cifar10")
    assert set(record.reported) == metrics
    if metrics:
        assert record.reported["nat"] == reported("cifar10", "AT(rob, Wo-10)", "nat")
        assert record.reported["nat"].mean == 0.9176


def test_a_record_says_which_variant_of_a_known_set_was_measured_and_in_which_order(
    tmp_path, monkeypatch, run, upright_evaluate
):
    usual = tiny(CIFAR10)
    monkeypatch.setattr(store, "KNOWN", {"cifar10": usual.known})
    for name, data in (("usual", usual), ("other", shuffled(usual))):
        np.savez(tmp_path / f"{name}.npz", **data.arrays)
        for attack in ("grid-3x3x3", "wo-2"):
            assert upright_evaluate(run.path, "--attack", attack, data=f"npz:{name}.npz")[0] == 0
    assert upright_evaluate(run.path, "--limit", "3", data="npz:other.npz")[0] == 0
    in_grid, in_draws, other_in_grid, other_in_draws, few = recorded()
    assert in_grid.data_variant == in_draws.data_variant == "official"
    for other in (other_in_grid, other_in_draws):
        assert other.data_variant == "official, in another order"
        assert other.dataset == "cifar10"
        assert other.data_digest != in_grid.data_digest
    assert (few.data_variant, few.dataset) == (None, "npz:other.npz")
    # The same question and the same answer, but where poses are drawn by an image's place.
    assert other_in_grid.key == in_grid.key
    assert other_in_grid.measured == in_grid.measured
    assert other_in_draws.key != in_draws.key


def test_only_a_finished_run_is_recorded(tmp_path, run, upright_evaluate):
    Path("empty").mkdir()
    unfinished = RunDirectory.create(
        tmp_path / "unfinished",
        run.recipe,
        classes=RunDirectory.open(run.path).classes,
        channels=3,
        resume=False,
    )
    for model, message in (
        ("empty", "empty is not a run directory"),
        ("unfinished", "unfinished has no checkpoint yet; train it first"),
    ):
        code, err = upright_evaluate(model, *OPTIONS)
        assert err.startswith(f"upright: error: {message}")
        assert (code, err.count("\n")) == (2, 1)
    checkpoint = RunDirectory.open(run.path).load()
    unfinished.save(replace(checkpoint, step=2))
    code, err = upright_evaluate("unfinished", *OPTIONS)
    assert "it is at step 2 of 3" in err
    assert not Path("out").exists()


def test_a_file_that_cannot_be_written_is_named_before_anything_is_evaluated(run, upright_evaluate):
    Path("out").write_text("a file, not a folder")
    code, err = upright_evaluate(run.path, *OPTIONS)
    assert code == 2
    assert err.startswith("upright: error: out/records.jsonl cannot be written")


def test_a_record_of_a_random_part_is_not_one_of_the_whole(run, upright_evaluate):
    options = [*OPTIONS[:4], "--limit", "60", "--device", "cpu"]
    for part in ([], ["--sample", "20"], ["--minutes", "9", "--sample", "20"], ["--minutes", "9"]):
        assert upright_evaluate(run.path, *options, *part) == (0, "")
    whole, sample, same, in_time = recorded()
    assert "sample" not in whole.evaluation
    assert (sample.evaluation["sample"], sample.images) == (20, 20)
    assert sample.key == same.key
    assert sample.measured == same.measured
    assert sample.key != whole.key
    assert sample.data_digest != whole.data_digest
    # In time for all, the order is no other question: the poses of wo-2 are drawn by place.
    assert (in_time.key, in_time.measured) == (whole.key, whole.measured)
    assert not cells.is_whole(replace(sample, evaluation=sample.evaluation | {"limit": None}))


def test_the_table_and_the_json_say_of_how_many_images(run, upright_evaluate, capsys):
    command = ["evaluate", str(run.path), "--data", "glyphs", "--attack", "wo-2", "--device", "cpu"]
    part = ["--limit", "30", "--sample", "12", "--details", "--json", "result.json"]
    upright_evaluate(run.path, *OPTIONS)  # in this folder
    assert main([*command, *part]) == 0
    assert "12 of 30 images, drawn at random" in capsys.readouterr().out
    result = json.loads(Path("result.json").read_text())
    assert (result["images"], result["of_images"], result["options"]["sample"]) == (12, 30, 12)
    assert len(result["details"]["places"]) == 12
    data = load_data("glyphs", limit=30)
    places = torch.tensor(result["details"]["places"])
    assert result["data_digest"] == data.take(places).digest()
    low, high = result["attacks"]["wo-2"]["interval"]
    assert low <= result["attacks"]["wo-2"]["accuracy"] <= high


@pytest.mark.parametrize("wrong", [["--minutes", "nan"], ["--minutes", "0"], ["--sample", "0"]])
def test_what_is_no_part_is_refused_before_anything_is_loaded(wrong, upright_evaluate):
    code, said = upright_evaluate("nowhere.py:make", *OPTIONS, *wrong)
    assert code == 2
    assert f"{wrong[0][2:]} must be" in said


@pytest.mark.parametrize("data", ["folder:nowhere", "nothing-like-it"])
def test_data_that_are_not_there_are_told_before_a_model_is_loaded(data, capsys):
    assert main(["evaluate", "nowhere.py:make", "--data", data]) == 2
    assert "no such folder" in (said := capsys.readouterr().err) or "no data set" in said


def test_a_sample_of_more_than_there_are_is_told(run, upright_evaluate):
    code, said = upright_evaluate(run.path, *OPTIONS[:4], "--limit", "9", "--sample", "10")
    assert code == 0
    assert "there are 9 images, and no 10 to draw from: all are measured" in said
    assert "sample" not in recorded()[0].evaluation


def test_the_explorer_needs_all_images(run, upright_evaluate):
    for part in (["--sample", "5"], ["--minutes", "1"]):
        code, said = upright_evaluate(run.path, *OPTIONS, *part, "--save", "saved")
        assert code == 2
        assert "leave out --sample and --minutes, or --save" in said
    code, said = upright_evaluate(run.path, *OPTIONS, "--include-identity", "--save", "saved")
    assert code == 2
    assert "leave out --include-identity, or --save" in said
