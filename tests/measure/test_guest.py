"""Models that were not trained here: recorded, on the page, and beside no number of the paper."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import made_up_report as made_up
from made_up_records import paper_recipe
from upright import evaluate, zoo
from upright.data import load_data
from upright.data.known import KNOWN
from upright.evaluation import Oracle
from upright.measure import Guest
from upright.measure.guest import guest_digest
from upright.paper import INVARIANCE
from upright.paper.missing import missing_tasks
from upright.paper.tables import fill_tables, select
from upright.pose import Pose
from upright.record_files import read
from upright.records import Record, from_json, to_json
from upright.report.comparable import comparable
from upright.report.page.sheet import methods_sheet
from upright.report.runs import group_runs
from upright.sources import load_model
from upright.zoo.card import read_card, write_card

MODELS = """
import torch
from torch import nn

def make():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

def mean():
    return lambda images: images.flatten(1)[:, :10]
"""
ASKED = ["--data", "glyphs", "--limit", "8", "--attack", "grid-3x3x3", "--device", "cpu"]


@pytest.fixture
def upright(upright):
    Path("own.py").write_text(MODELS)
    return upright


def test_a_model_of_one_s_own_reaches_tables_and_page(upright):
    options = ["--record", "results/own.jsonl", "--save", "results/saved", "--name", "mine <b>"]
    code, out, err = upright("evaluate", "own.py:make", *ASKED, *options)
    assert (code, err) == (0, "")
    assert "mine <b> on glyphs" in " ".join(out.split())
    (record,) = read("results/own.jsonl").records
    data = load_data("glyphs", limit=8)
    direct = evaluate(load_model("own.py:make"), data, attacks=["grid-3x3x3"])
    assert record.measured["grid-3x3x3"] == direct.attacks["grid-3x3x3"].accuracy
    assert (record.method, record.model) == ("mine <b>", "own.py:make")
    assert (record.steps, record.train_seconds, record.trained_by) == (None, None, ())
    assert (record.evaluation["limit"], record.reported) == (8, {})

    assert upright("report", "results", "--out", "page")[0] == 0
    page = Path("page/index.html").read_text()
    row = re.search(r'<table id="table-methods".*?</table>', page, re.DOTALL).group()
    assert "mine &lt;b&gt;" in row
    assert f"{100 * record.measured['nat']:.2f}" in row
    (script,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page)
    (shown,) = json.loads(script)["exhibitions"]
    assert shown["models"][0]["title"] == "mine <b>"
    assert f'id="record-{shown["models"][0]["record"]}"' in page
    assert f"SHA-256 of its weights: {record.recipe['weights_digest']}" in page


def test_a_page_without_records_names_a_command_that_makes_one_of_any_model(upright):
    assert upright("evaluate", "own.py:mean", *ASKED, "--save", "results/saved")[0] == 0
    assert upright("report", "results", "--out", "page")[0] == 0
    said = " ".join(Path("page/index.html").read_text().split())
    assert "upright evaluate MODEL --data DATA --record RESULTS/records.jsonl" in said
    assert upright("evaluate", "own.py:mean", *ASKED, "--record", "results/r.jsonl")[0] == 0
    assert upright("report", "results", "--out", "page")[0] == 0
    assert "no records among" not in Path("page/index.html").read_text()


def test_one_question_has_one_record_and_other_weights_ask_another(upright):
    Path("state").mkdir()
    for number, seed in enumerate((3, 3, 4)):
        Path("own.py").write_text(MODELS.replace("manual_seed(3)", f"manual_seed({seed})"))
        state = ["--state", f"state/{number}", "--record", "r.jsonl"]
        assert upright("evaluate", "own.py:make", *ASKED, *state)[0] == 0
    first, other = read("r.jsonl").records
    assert first.key != other.key
    assert first.method == other.method == "own.py:make"


def test_weights_are_known_by_their_content():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
            self.register_buffer("count", torch.tensor(3))

    net = Net()
    by_hand = hashlib.sha256(
        b"weight torch.float32 (2,)\n\x00\x00\x80?\x00\x00\x00@"
        b"count torch.int64 ()\n" + (3).to_bytes(8, "little")
    )
    assert guest_digest(net, "anything") == by_hand.hexdigest()
    assert guest_digest(net.half(), "anything") != by_hand.hexdigest()


def test_what_is_no_plain_tensor_counts_by_its_text():
    class Odd(nn.Module):
        def __init__(self, extra: str) -> None:
            super().__init__()
            self.lazy, self.extra = nn.LazyLinear(3), extra
            self.register_buffer("sparse", torch.eye(2).to_sparse())

        def get_extra_state(self) -> str:
            return self.extra

    digests = {guest_digest(Odd(extra), "own.py:odd") for extra in ("a", "a", "b")}
    assert len(digests) == 2


def test_a_model_without_weights_is_known_by_its_file_or_by_its_name_alone(tmp_path):
    file = tmp_path / "net.onnx"
    file.write_bytes(b"content")
    content = hashlib.sha256(b"content").hexdigest()
    for source in (str(file), f"tta-10:{file}", f"{file}:make"):
        assert guest_digest(lambda images: images, source) == content
    assert guest_digest(lambda images: images, "package.module:make") is None
    assert guest_digest(nn.Flatten(), str(file)) == content  # a module, but nothing in it


def test_an_oracle_is_no_guest():
    oracle = Oracle(lambda images: Pose.zeros(len(images)), nn.Flatten())
    with pytest.raises(ValueError, match="`upright oracle` measures and records it"):
        Guest.of(oracle, "own.py:oracle")


def test_a_run_is_called_by_its_recipe(upright, small_run):
    code, _, err = upright("evaluate", small_run.path, *ASKED, "--name", "mine")
    assert code == 2
    assert err.endswith("is called by its recipe; leave out --name\n")


def guest_of(record: Record, name: str = "mine") -> Record:
    """What a record would be of the same numbers of a model that was brought."""
    told = Guest(name=name, source="own.py:make", weights_digest="0" * 64).told()
    return replace(record, **told, beside=None, trained_by=(), reported={})


def test_a_guest_fills_no_cell_of_the_paper_and_replaces_no_run():
    recipe = paper_recipe("cifar10", "KL(rob, Wo-10)")
    digests = {
        name: value
        for name, value in KNOWN["cifar10"].variants[0].digests.items()
        if "test" in name
    }
    run = replace(
        made_up.RECORDS[0], dataset="cifar10", data_digest=digests, recipe=recipe.as_json()
    )
    tables = select(
        INVARIANCE, tables=["regspat"], datasets=["cifar10"], methods=["KL(rob, Wo-10)"]
    )
    for record, measured in ((run, True), (guest_of(run, "KL(rob, Wo-10)"), False)):
        cells = [
            cell for table in fill_tables(INVARIANCE, tables, [record]) for cell in table.cells
        ]
        assert any(cell.measured for cell in cells) is measured
        needs = [(recipe, "grid-775")]
        assert (not missing_tasks(INVARIANCE, needs, [record], seeds=1)) is measured


def test_a_guest_is_in_no_figure_and_a_line_of_its_own_in_the_table():
    records = (*made_up.RECORDS, guest_of(made_up.RECORDS[0]), guest_of(made_up.RECORDS[0], "b"))
    assert comparable(records) == comparable(made_up.RECORDS)
    runs = group_runs(records)
    assert len(runs) == len(group_runs(made_up.RECORDS)) + 2
    sheet = methods_sheet(runs)
    headings = [heading.text.partition(",")[0] for heading in sheet.headings]
    (row,) = [row for row in sheet.rows if row[0].text == "mine"]
    cells = dict(zip(headings, row, strict=True))
    assert [cells[name].text for name in ("training", "steps", "seeds")] == ["", "", ""]
    assert cells["network"].text == "own.py:make"
    assert cells["natural %"].text == "97.00"
    assert methods_sheet(group_runs(records[-2:])).rows  # guests alone make a table, too


def test_only_of_a_guest_the_training_may_be_unknown():
    guest = guest_of(made_up.RECORDS[0])
    assert from_json(json.loads(json.dumps(to_json(guest)))) == guest
    with pytest.raises(ValueError, match="steps is None, but only of a guest it is unknown"):
        replace(made_up.RECORDS[0], steps=None)


def test_a_card_of_the_zoo_cannot_be_of_a_guest():
    name = zoo.names()[0]
    content = json.loads(write_card(zoo.card(name)))
    content["records"] = [to_json(guest_of(zoo.card(name).records[0]))]
    with pytest.raises(ValueError, match="a recipe has no name, source, weights_digest"):
        read_card(name, json.dumps(content).encode())
