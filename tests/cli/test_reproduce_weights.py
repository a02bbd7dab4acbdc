"""``upright reproduce --factor`` and ``--held-out``: the runs by which λ is chosen."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tiny_runs import colours, save_as_npz, sending
from upright import evaluate, record_files
from upright.cli import main
from upright.cli import reproduce as command
from upright.data import load_data
from upright.objective import Objective
from upright.paper import Figure, Layout, Method, Paper
from upright.record_files import RecordFolder
from upright.train import load_network
from upright.train.any_plan import plan_from_json

DATA = "npz:colours.npz"
COLOURS = Paper(
    numbers="""\
table,dataset,method,metric,mean,stderr
small,Colours,pulled,nat,90.00,1.00
small,Colours,pulled,grid-3x3x3,80.00,1.00
small,Colours,plain,nat,90.00,1.00
""",
    datasets={DATA: "Colours"},
    layouts=(
        Layout(
            name="small",
            title="Small",
            methods=("plain", "pulled"),
            datasets=(DATA,),
            metrics=("nat", "grid-3x3x3"),
        ),
    ),
    figures=(
        Figure(name="curve", title="λ", datasets=(DATA,), methods=("pulled",), factors=(1.0, 2.0)),
    ),
    methods={
        "plain": Method(objective=Objective.parse("std*"), model="tiny"),
        "pulled": Method(objective=Objective.parse("KL(rob, Wo-2)"), model="tiny"),
    },
    training={DATA: {"steps": 12, "batch": 11, "learning_rate": 0.05}},
    decisive="grid-3x3x3",
)
"""A paper whose runs take a moment."""


@pytest.fixture
def reproduce(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr(record_files, "CHECKOUT", tmp_path)  # which has no records of ours
    monkeypatch.setattr(command, "_PAPER", COLOURS)
    save_as_npz(colours(), tmp_path / "colours.npz")

    def call(*options):
        code = main(["reproduce", "--device", "cpu", "--seeds", "1", *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def told(folder="results"):
    return sorted(
        (each.method, each.seed, sorted(each.measured.items()))
        for each in RecordFolder(Path(folder)).read()
    )


CURVE = ("--figure", "curve", "--held-out")


@pytest.mark.usefixtures("mishaps")
def test_held_out_runs_are_measured_on_the_tenth_that_they_have_not_seen(reproduce):
    assert reproduce(*CURVE)[0] == 0
    assert told() == []
    records = RecordFolder(Path("results")).held_out.read()
    assert {each.method for each in records} == {"KL(rob, Wo-2)", "KL(rob, Wo-2; λ=16)"}
    data = load_data(DATA, split="held-out")
    for record in records:
        plan = plan_from_json(record.recipe)
        assert plan.held_out
        assert (record.images, record.evaluation["split"]) == (4, "held-out")
        network = load_network(Path("runs/reproduce") / plan.hash)
        direct = evaluate(network, (data.images, data.labels), attacks=["grid-3x3x3"])
        assert record.measured == {
            "nat": direct.natural_accuracy,
            "grid-3x3x3": direct.attacks["grid-3x3x3"].accuracy,
        }
        assert record.reported == {}


@pytest.mark.usefixtures("mishaps")
def test_what_is_recorded_is_not_made_again_and_both_ways_are_shown(reproduce):
    assert reproduce(*CURVE)[0] == 0
    (file,) = Path("results/held-out").iterdir()
    before = file.read_bytes()
    code, out, err = reproduce(*CURVE)
    assert (code, err, file.read_bytes()) == (0, "", before)
    assert "no other tried" not in out
    assert "held-out images" in out
    assert "No run is missing" in reproduce("--dry-run", *CURVE)[1]
    # The test set's runs are others.
    _, out, _ = reproduce("--dry-run", "--figure", "curve")
    assert "2 runs missing" in out
    assert "held out" not in out
    assert reproduce("--figure", "curve")[0] == 0
    assert len(told()) == 2
    assert file.read_bytes() == before


def test_stopped_it_continues(reproduce, mishaps):
    mishaps[5] = sending(signal.SIGINT)
    assert reproduce(*CURVE, "--checkpoint-every", "3")[0] == 130
    assert not Path("results").exists()
    del mishaps[5]
    assert reproduce(*CURVE, "--checkpoint-every", "3")[0] == 0
    stopped = told("results/held-out")
    assert reproduce(*CURVE, "--results", "others", "--runs", "other-runs")[0] == 0
    assert told("others/held-out") == stopped


def test_a_grid_around_the_default_is_of_the_methods_with_a_penalty(reproduce):
    code, out, err = reproduce("--dry-run", "--factor", "0.5", "--factor", "1", "--held-out")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for name in ("KL(rob, Wo-2; λ=4)", "KL(rob, Wo-2)"):
        assert (
            f"{name} on {DATA}, tiny, batch 11, a tenth held out 1 0 grid-3x3x3 ? unknown" in lines
        )
    assert any(line.startswith("2 runs missing") for line in lines)
    assert "std*" not in out
    every = reproduce("--dry-run", "--factor", "0.5", "--table", "small", "--figure", "curve")[1]
    assert "1 run missing" in every  # the same of both


@pytest.mark.usefixtures("mishaps")
def test_the_choice_goes_between_the_marks_of_a_page(reproduce):
    Path("page.md").write_text("<!-- reproduce: weights -->\n<!-- end -->\n")
    assert reproduce("--figure", "curve")[0] == 0
    assert reproduce("--dry-run", "--markdown", "page.md")[0] == 0
    page = Path("page.md").read_text()
    assert "| Colours: natural / grid-3x3x3, % | λ | test set | seeds |" in page
    assert page.count("\n| `pulled` | 8 |") == page.count("\n|  | 16 |") == 1
    assert "90.00 / 80.00" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--factor", "0"], "--factor is 0, but must be above 0, and finite"),
        (["--factor", "nan"], "--factor is nan, but must be above 0, and finite"),
        (["--factor", "1", "--method", "plain"], "--factor leaves no run: only methods with a"),
        (["--factor", "1", "--batch", "64"], "--batch is of methods without a penalty, --factor"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(reproduce, options, message):
    code, _, err = reproduce("--dry-run", *options)
    assert code == 2
    assert err.startswith(f"upright: error: {message}")
    assert err.count("\n") == 1
