"""The paper's STN+ in ``reproduce``: two networks together are trained, evaluated and recorded."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from tiny_runs import colours, save_as_npz, sending, tiny_recipe
from upright import evaluate
from upright.cli import main
from upright.cli import reproduce as command
from upright.evaluation import Oracle
from upright.objective import LocNet, Objective
from upright.paper import INVARIANCE
from upright.paper.missing import make_missing
from upright.record_files import RecordFolder, read
from upright.sources import StnPlus, load_locator
from upright.train import Pair, load_network
from upright.train.any_plan import plan_from_json
from upright.warp import warp
from upright.workers import LocalEngine, Task, engine, perform

CPU = torch.device("cpu")


# --- making them ----------------------------------------------------------------------------------


@pytest.fixture
def pairs(tmp_path, mishaps, monkeypatch):  # noqa: ARG001 - the network has to be known
    """Four columns of one seed, which have three runs."""
    monkeypatch.chdir(tmp_path)
    save_as_npz(colours(), tmp_path / "colours.npz")
    data = "npz:colours.npz"
    return [
        Pair(
            locnet=tiny_recipe(data=data, objective=f"LocNet({fill})"),
            classifier=tiny_recipe(data=data, objective="std*"),
            oracle=oracle,
        )
        for oracle in (True, False)
        for fill in ("black", "reflection")
    ]


def tasks_of(pairs):
    return [Task(plan=pair, attacks=("grid-3x3x3",)) for pair in pairs]


def by_hand(pair, runs):
    """What a pair reaches, evaluated without tasks, engines and records."""
    locator = load_locator(runs / pair.locnet.hash)
    model = load_network(runs / pair.classifier.hash)
    data, fill = colours(), locator.fill
    both = Oracle(locator, model) if pair.oracle else StnPlus(locator, model, fill)
    found = evaluate(both.eval(), (data.images, data.labels), attacks=["grid-3x3x3"], fill=fill)
    return {"nat": found.natural_accuracy, "grid-3x3x3": found.attacks["grid-3x3x3"].accuracy}


def told(results):
    return sorted((each.method, sorted(each.measured.items())) for each in results.read())


@pytest.fixture
def trained(monkeypatch):
    """The recipes that were trained, in groups."""
    found = []
    original = engine.train_together

    def noted(runs, **options):
        found.append(list(runs.values()))
        return original(runs, **options)

    monkeypatch.setattr(engine, "train_together", noted)
    return found


@pytest.mark.parametrize("together", [1, 2])
def test_the_command_trains_each_network_once_and_records_every_pair(
    tmp_path, pairs, trained, monkeypatch, capsys, together
):
    needs = [(pair, metric) for pair in pairs for metric in ("nat", "grid-3x3x3")]
    monkeypatch.setattr(command, "table_needs", lambda *_, **__: needs)
    options = ["--table", "two-stage-eval", "--dataset", "cifar10", "--seeds", "1"]
    options += ["--device", "cpu", "--together", str(together)]
    assert main(["reproduce", *options]) == 0
    out, err = capsys.readouterr()
    assert "two-stage-eval" in out
    assert err.count("grid-3x3x3") == 4
    assert [len(group) for group in trained] == {1: [1, 1, 1], 2: [2, 1]}[together]
    assert {run for group in trained for run in group} == {r for p in pairs for r in p.runs}
    records = RecordFolder(tmp_path / "results").read()
    for pair, record in zip(pairs, sorted(records, key=order(pairs)), strict=True):
        assert record.measured == by_hand(pair, tmp_path / "runs" / "reproduce")
        assert plan_from_json(record.recipe) == pair
        assert (record.is_oracle, record.images) == (pair.oracle, 48)
        assert record.evaluation["fill"] == pair.locnet.objective.fill
        assert record.steps == 24
    assert main(["reproduce", *options]) == 0
    assert sum(map(len, trained)) == 3
    assert RecordFolder(tmp_path / "results").read() == records


def order(pairs):
    return lambda record: pairs.index(plan_from_json(record.recipe))


def test_a_record_of_the_defence_is_what_two_warps_and_two_networks_say(tmp_path, pairs):
    """Without ``StnPlus`` and ``evaluate``: every image under every pose, by hand."""
    naive = pairs[3]
    (record,) = perform(*tasks_of([naive]), tmp_path, device=CPU)
    locator = load_locator(tmp_path / naive.locnet.hash)
    classifier = load_network(tmp_path / naive.classifier.hash)
    images, labels = colours().as_float(), colours().labels
    right = torch.ones(48, dtype=torch.bool)
    with torch.no_grad():
        poses = naive.classifier.space.grid((3, 3, 3))
        for i in range(27):
            moved = warp(images, poses[i : i + 1], fill="reflection")
            back = warp(moved, locator(moved).inverse(), fill="reflection")
            right &= classifier(back).argmax(1) == labels
    assert record.measured["grid-3x3x3"] == right.double().mean()
    assert 0 < record.measured["grid-3x3x3"] < 1


def test_pairs_trained_in_half_precision_are_evaluated_in_float16(tmp_path, pairs):
    for pair in (each.changed(precision="bfloat16") for each in pairs[::2]):
        (record,) = perform(*tasks_of([pair]), tmp_path, device=CPU)
        assert record.evaluation["precision"] == "float16"
        assert record.measured["nat"] == pytest.approx(by_hand(pair, tmp_path)["nat"], abs=0.05)


@pytest.mark.parametrize("step", [5, 17])
def test_stopped_in_the_training_of_either_it_continues(tmp_path, pairs, mishaps, step):
    tasks, runs = tasks_of(pairs), tmp_path / "runs"
    local = LocalEngine(runs=runs, device=CPU, checkpoint_every=3)
    expected = RecordFolder(tmp_path / "undisturbed")
    other = LocalEngine(runs=tmp_path / "other", device=CPU)
    assert make_missing(INVARIANCE, tasks, other, expected) == ()
    results = RecordFolder(tmp_path / "results")
    passes = {"left": step}

    def stop(images):
        passes["left"] -= 1
        return sending(signal.SIGINT)(images) if passes["left"] == 0 else images

    for number in range(1, 13):
        mishaps[number] = stop
    with pytest.raises(KeyboardInterrupt):
        make_missing(INVARIANCE, tasks, local, results)
    assert results.read() == ()
    assert make_missing(INVARIANCE, tasks, local, results) == ()
    assert told(results) == told(expected)


def test_a_locnet_that_diverges_costs_its_own_pairs_alone(tmp_path, pairs):
    bad = [
        replace(pair, locnet=replace(pair.locnet, learning_rate=1e30))
        if pair.locnet.objective.fill == "reflection"
        else pair
        for pair in pairs
    ]
    results = RecordFolder(tmp_path / "results")
    local = LocalEngine(runs=tmp_path / "runs", device=CPU, together=4)
    failures = make_missing(INVARIANCE, tasks_of(bad), local, results)
    assert [failure.task.plan for failure in failures] == [bad[1], bad[3]]
    assert all("no longer finite" in failure.reason for failure in failures)
    assert len(results.read()) == 2


# --- by hand, one by one --------------------------------------------------------------------------


@pytest.fixture
def upright(upright, mishaps):  # noqa: ARG001 - the network has to be known
    """The command in a folder with the runs ``loc`` and ``cls``."""
    options = ("--data", "npz:colours.npz", "--model", "tiny", "--steps", 6, "--batch", 11)
    assert upright("train", "LocNet(reflection)", *options, "--out", "loc")[0] == 0
    assert upright("train", "std*", *options, "--out", "cls")[0] == 0
    return upright


DATA = ("--data", "npz:colours.npz", "--attack", "grid-3x3x3", "--record", "records.jsonl")


def test_an_oracle_whose_record_cannot_be_added_is_shown(upright, monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device", "records.jsonl"))
    monkeypatch.setattr("upright.cli.oracle.append", full)
    code, out, err = upright("oracle", "loc", "cls", *DATA)
    assert code == 2
    assert "ORACLE" in out
    assert err == (
        "upright: error: --record records.jsonl: records.jsonl: No space left on device\n"
    )


def test_evaluate_and_oracle_record_the_two_runs(upright):
    assert upright("evaluate", "stn-plus:loc,cls", *DATA, "--fill", "reflection")[0] == 0
    assert upright("oracle", "loc", "cls", *DATA)[0] == 0
    defence, trick = read("records.jsonl").records
    assert (defence.is_oracle, trick.is_oracle) == (False, True)
    assert defence.method == "STN+(LocNet(reflection), std*)"
    assert trick.method == "STN+(LocNet(reflection), std*) oracle"
    for record in (defence, trick):
        pair = plan_from_json(record.recipe)
        assert pair.locnet.objective == LocNet("reflection")
        assert pair.classifier.objective == Objective.parse("std*")
        assert record.evaluation["fill"] == "reflection"
        assert (record.steps, record.beside, len(record.trained_by)) == (12, 1, 1)
        assert record.reported == {}
    locator, classifier = load_locator(Path("loc")), load_network(Path("cls"))
    data = (colours().images, colours().labels)
    for record, model in (
        (defence, StnPlus(locator, classifier, "reflection")),
        (trick, Oracle(locator, classifier)),
    ):
        found = evaluate(model.eval(), data, attacks=["grid-3x3x3"], fill="reflection")
        assert record.measured["grid-3x3x3"] == found.attacks["grid-3x3x3"].accuracy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("evaluate", "stn-plus:cls,cls", *DATA),
            "cls was trained with std*, which finds no poses; name a run of LocNet(black) or",
        ),
        (
            ("evaluate", "stn-plus:loc,loc", *DATA),
            "loc is a LocNet, which finds poses and no classes; name it together with",
        ),
        (
            ("evaluate", "stn-plus:loc,gone", *DATA),
            "there is no such folder, and no model is called",
        ),
        (("oracle", "loc", "models.py:make", *DATA), "two networks are recorded together by the"),
        (
            ("evaluate", "stn-plus:loc", *DATA),
            "no model is called 'stn-plus:loc' (nearest: stn-plus:L",
        ),
        (("oracle", "cls", "cls", *DATA), "cls was trained with std*, which finds no poses"),
    ],
)
def test_what_cannot_be_recorded_is_named_before_it_is_evaluated(upright, arguments, message):
    code, _, err = upright(*arguments)
    assert code == 2
    assert err.startswith(f"upright: error: {message}")
    assert not Path("records.jsonl").exists()
