"""``upright zoo list|show|add``, and ``upright evaluate zoo:NAME``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cheap_compiler import compiled_cheaply
from tiny_zoo import NAME
from upright import zoo
from upright.record_files import read
from upright.train import Recipe
from upright.zoo import Entry
from upright.zoo.card import write_card

ASKED = ["--data", "glyphs", "--limit", "12", "--attack", "grid-3x3x3", "--device", "cpu"]


def test_a_run_is_packed_measured_and_found_again(small_run, upright, monkeypatch):
    add = ["zoo", "add", small_run.path, "--into", "mine", "--name", "glyphs/mine"]
    options = ["--limit", 12, "--attack", "grid-3x3x3", "--device", "cpu", "--note", "The first."]
    code, out, err = upright(*add, *options)
    assert (code, err) == (0, "")
    assert out.startswith("mine/glyphs/mine.json, and ")
    monkeypatch.setenv("UPRIGHT_ZOO", "mine")
    assert zoo.names() == tuple(sorted({"glyphs/mine", *zoo.names()}))
    code, out, _ = upright("zoo", "show", "glyphs/mine")
    assert code == 0
    assert out == zoo.to_markdown(zoo.card("glyphs/mine"))
    assert "The first." in out

    code, _, err = upright(*add, *options)
    assert code == 2
    assert "mine/glyphs/mine.json is there already" in err


def test_a_network_is_compiled_to_be_measured(small_run, upright):
    into = ["--into", "mine", "--attack", "grid-3x3x3", "--device", "cpu", "--limit", 12]
    with compiled_cheaply(side=32) as compiler:
        for name, more in ("glyphs/plain", []), ("glyphs/compiled", ["--compile"]):
            assert compiler.sizes == []
            add = ["zoo", "add", small_run.path, "--name", name, *into, *more]
            assert upright(*add)[::2] == (0, "")
        assert compiler.sizes != []
    plain, compiled = (
        Entry(Path("mine"), name).card().records[0] for name in ("glyphs/plain", "glyphs/compiled")
    )
    assert compiled.measured == plain.measured
    assert compiled.evaluation == plain.evaluation | {"compile": True}


def test_an_evaluation_measures_what_the_card_says(entry, upright):
    code, out, err = upright("evaluate", f"zoo:{NAME}", *ASKED, "--json", "result.json")
    assert (code, err) == (0, "")
    assert f"zoo:{NAME} on glyphs" in " ".join(out.split())
    result = json.loads(Path("result.json").read_text())
    measured = entry.card().records[0].measured
    assert result["natural_accuracy"] == measured["nat"]
    assert result["attacks"]["grid-3x3x3"]["accuracy"] == measured["grid-3x3x3"]


@pytest.mark.usefixtures("entry")
def test_any_other_source_may_stand_before_the_zoo(upright):
    code, _, err = upright("evaluate", f"tta-2:zoo:{NAME}", *ASKED, "--record", "x.jsonl")
    assert (code, err) == (0, "")
    (record,) = read("x.jsonl").records
    assert record.of_several  # averaged over poses, it is not what its recipe gives
    assert record.method == "mean(KL(rob, Wo-2); 2)"
    assert record.evaluation["weights"] == "bfloat16"


def test_a_run_whose_data_have_no_split_is_not_measured_on_what_it_was_trained_on(upright):
    images, labels = np.zeros((6, 8, 8, 3), np.uint8), np.arange(6) % 2
    np.savez("all.npz", images=images, labels=labels)
    tiny = ("--model", "convnet0.25", "--steps", 2, "--batch", 2, "--device", "cpu")
    assert upright("train", "std", "--data", "npz:all.npz", "--out", "run", *tiny)[0] == 0
    code, _, err = upright("zoo", "add", "run", "--into", "mine", "--device", "cpu")
    assert code == 2
    assert "npz:all.npz has no test images apart from those" in err
    assert not Path("mine").exists()


def test_a_record_knows_the_recipe_and_is_another_than_that_of_the_run(small_run, entry, upright):
    for model in (f"zoo:{NAME}", small_run.path):
        code, _, err = upright("evaluate", model, *ASKED, "--record", "records.jsonl")
        assert (code, err) == (0, "")
    packed, whole = read("records.jsonl").records
    card = entry.card()
    assert Recipe.from_json(packed.recipe) == Recipe.from_json(whole.recipe) == small_run.recipe
    assert (packed.seed, packed.steps) == (0, 20)
    assert packed.train_seconds == whole.train_seconds == card.records[0].train_seconds
    assert packed.beside == whole.beside == 1
    assert packed.trained_by == whole.trained_by
    assert packed.trained_by
    assert packed.measured == card.records[0].measured
    assert packed.evaluation == whole.evaluation | {"weights": "bfloat16"}
    assert packed.key != whole.key


@pytest.mark.usefixtures("entry")
def test_the_explorer_takes_a_model_of_the_zoo(upright):
    code, _, err = upright("evaluate", f"zoo:{NAME}", *ASKED, "--save", "saved")
    assert (code, err) == (0, "")
    assert len(list(Path("saved").glob("*.safetensors"))) == 2


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_list_reads_in_every_terminal(upright, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = upright("zoo", "list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert all(len(line) <= columns for line in lines)
    places = [place for place, line in enumerate(lines) if line.startswith("zoo:")]
    assert [lines[place].split()[0] for place in places] == [f"zoo:{each}" for each in zoo.names()]
    assert len(places) == len(zoo.names()) > 5
    for name, begin, end in zip(zoo.names(), places, [*places[1:], len(lines)], strict=True):
        card, about = zoo.card(name), lines[begin:end]
        reported = card.records[0].reported.get("grid-775")
        shown = f"grid-775 {100 * card.records[0].measured['grid-775']:.2f}"
        if reported is not None:
            shown += f" ({100 * reported.mean:.2f} ± {100 * reported.stderr:.2f})"
        for text in (str(card.recipe.objective), shown):
            assert any(text in line for line in about)  # whole, on one line


def test_the_list_has_every_model_with_its_numbers_and_names_what_is_damaged(entry, upright):
    card = replace(entry.card(), name="glyphs/bad")
    Entry(entry.folder, "glyphs/bad").write(card, b"")
    bad = entry.folder / "glyphs" / "bad.json"
    bad.write_bytes(bad.read_bytes()[:-9])
    code, out, err = upright("zoo", "list")
    shown = " ".join(out.split())
    assert code == 0
    assert f"{100 * card.records[0].measured['grid-3x3x3']:.2f}" in shown
    assert "KL(rob, Wo-2)" in shown
    assert "grid-3x3x3" in shown
    assert err.startswith("upright: warning: ")
    assert "bad.json is damaged" in err
    assert err.count("\n") == 1


def test_an_empty_zoo_says_so(upright, monkeypatch):
    monkeypatch.setattr("upright.zoo.shelf.SHIPPED", Path("nowhere"))
    monkeypatch.delenv("UPRIGHT_ZOO", raising=False)
    code, out, err = upright("zoo", "list")
    assert (code, err) == (0, "")
    assert out.startswith("No model is in this installation")
    for command in (["evaluate", "zoo:cifar10/std", "--data", "glyphs"], ["zoo", "show", "a/b"]):
        code, out, err = upright(*command)
        assert (code, out) == (2, "")
        assert "there is none in this installation" in err
        assert err.count("\n") == 1


def test_a_card_cannot_steer_the_terminal(entry, upright):
    classes = ("\x1b[2J", "\ud800", *entry.card().classes[2:])
    entry.card_file.write_bytes(write_card(replace(entry.card(), classes=classes, note="\x07")))
    code, out, err = upright("zoo", "show", f"zoo:{NAME}")
    assert (code, err) == (0, "")
    assert "\\x1b[2J, \\ud800, 2" in out
    assert out.replace("\n", "").isprintable()
