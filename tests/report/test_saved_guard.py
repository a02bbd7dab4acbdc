"""The folder of ``upright evaluate --save`` from a stranger, or after a bad day of its disk."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load, save

import made_up_report as made_up
from upright.cli import main
from upright.report import saved
from upright.report.exhibition import Exhibition
from upright.report.figures import find_example
from upright.report.saved import read_saved, write_saved


@pytest.fixture
def folder(tmp_path):
    made_up.results(tmp_path)
    return tmp_path / "saved"


def rewritten(path: Path, *, drop: str = "", about: dict | None = None, **arrays) -> None:
    """Save a file anew with other content, but without a new digest."""
    with safe_open(path, "numpy") as file:
        metadata = dict(file.metadata())
    metadata["about"] = json.dumps(json.loads(metadata["about"]) | (about or {}))
    metadata.pop(drop, None)
    path.write_bytes(save(load(path.read_bytes()) | arrays, metadata))


def a_model(folder: Path) -> Path:
    return next(file for file in folder.glob("*.safetensors") if file.name != "shown.safetensors")


def test_each_file_is_guarded_whichever_bit_flips(folder):
    """Of the arrays, the text and the digest itself: every one that safetensors can still read."""
    for path in (a_model(folder), folder / "shown.safetensors"):
        content = path.read_bytes()
        for place in np.random.default_rng(0).integers(8, len(content), 60):
            altered = bytearray(content)
            altered[place] ^= 1
            path.write_bytes(bytes(altered))
            with pytest.raises(ValueError, match=re.escape(str(folder))) as caught:
                read_saved(folder)
            assert "\n" not in str(caught.value)
        path.write_bytes(content)
    assert read_saved(folder).unguarded == ()


def test_altered_answers_are_not_shown(folder, tmp_path, capsys):
    path = a_model(folder)
    predicted = load(path.read_bytes())["predicted"]
    rewritten(path, predicted=np.zeros_like(predicted))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page")]) == 2
    err = capsys.readouterr().err
    assert err == (f"upright: error: {path} is not as it was saved; save it again, or remove it\n")
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    ("about", "arrays", "message"),
    [
        ({"measured": {"nat": float("nan"), "grid-775": 0.5}}, {}, "NaN is not a number of JSON"),
        ({"measured": {"nat": 0.5}}, {}, "no accuracy of 'grid-775' is there"),
        ({"measured": {"nat": 95, "grid-775": 0.5}}, {}, "nat is 95, but must be a fraction"),
        ({"measured": None}, {}, "no accuracies are there"),
        ({"name": 5}, {}, "names must be text"),
        ({"record": []}, {}, "names must be text"),
        ({"seed": 1e308}, {}, "no seed can be"),
        ({}, {"worst": np.full(7, 3 * 5 * 7)}, "worst names no pose"),
        ({}, {"worst": np.full(7, -1)}, "worst names no pose"),
        ({}, {"confidence": np.zeros((7, 3, 5, 7), np.float32)}, "confidence is float32"),
        ({}, {"predicted_along": np.zeros((20, 6), np.uint8)}, "predicted_along has shape"),
        ({}, {"natural_correct": np.ones(3, bool)}, "natural_correct and grid_correct"),
    ],
)
def test_answers_that_cannot_be_are_refused_even_without_a_digest(folder, about, arrays, message):
    path = a_model(folder)
    rewritten(path, drop="sha256", about=about, **arrays)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_saved(folder)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("about", "arrays", "message"),
    [
        ({"classes": 5}, {}, "not iterable"),
        ({"dataset": None}, {}, "must be text"),
        ({"canvas": -1}, {}, "no canvas of -1 pixels"),
        ({}, {"images": np.zeros((7, 2, 4, 4), np.uint8)}, "one, three or four channels"),
        ({}, {"labels": np.full(20, -1)}, "labels are counted from 0"),
        ({}, {"labels": np.zeros(6, int)}, "labels and places are of other images"),
        ({}, {"grid/dx": np.array([0, np.inf], np.float32)}, "dx is no axis"),
        ({}, {"grid/dy": np.zeros(0, np.float32)}, "dy is float32 of shape (0,)"),
        ({"along": "zoom"}, {}, "no axis is called 'zoom'"),
        ({"space": "shift(2px, 3px) swirl(30)"}, {}, "no family is called 'swirl'"),
        ({"space": "shift(2px, 3px) rotate(30) zoom"}, {}, "grid/zoom"),
        ({"space": "shift(2px)"}, {}, "unexpected keyword argument 'grid/angle'"),
        ({"space": "shift(10%) rotate(30)"}, {}, "the limits of dx must be in pixels"),
        ({"space": "shift(3e6px) rotate(30)"}, {}, "dx goes too far"),
        ({"space": ["shift"]}, {}, "a space is a text"),
    ],
)
def test_images_that_cannot_be_are_refused_even_without_a_digest(folder, about, arrays, message):
    rewritten(folder / "shown.safetensors", drop="sha256", about=about, **arrays)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_saved(folder)


def test_a_folder_from_before_there_were_digests_is_read_added_to_and_said_to_be_unguarded(
    tmp_path, capsys, monkeypatch
):
    made_up.results(tmp_path)
    folder, shown = tmp_path / "saved", made_up.shown()
    old = folder / "shown.safetensors"
    rewritten(old, drop="sha256")
    for file in folder.glob("runs*"):
        rewritten(file, drop="sha256", about={"shown": saved._digest(old.read_bytes())})
    new = write_saved(folder, shown, made_up.model(shown, "new"))
    found = read_saved(folder)
    assert len(found.models) == 3
    assert set(found.unguarded) == set(folder.glob("*.safetensors")) - {new}
    monkeypatch.setattr("upright.report.page.write_report", lambda _contents, out: out)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page")]) == 0
    err = capsys.readouterr().err
    assert err.count("has no digest") == err.count("\n") == 3


FIRST_NAMES = {
    "grid/dx": "dx_px",
    "grid/dy": "dy_px",
    "grid/angle": "angle_degrees",
    "predicted_along": "turned",
}


def as_first_saved(path: Path, **about) -> None:
    """Write a file as the first version did, which knew shifts and turns alone."""
    with safe_open(path, "numpy") as file:
        told = json.loads(file.metadata()["about"]) | about
    for name in ("space", "along"):
        told.pop(name, None)
    arrays = {FIRST_NAMES.get(name, name): each for name, each in load(path.read_bytes()).items()}
    text = json.dumps(told, sort_keys=True)
    path.write_bytes(save(arrays, {"about": text, "sha256": saved._digest_of(text, arrays)}))


def test_a_folder_of_the_first_version_is_read_as_it_would_be_now_and_added_to(folder):
    now = read_saved(folder)
    as_first_saved(folder / "shown.safetensors")
    digest = saved._digest((folder / "shown.safetensors").read_bytes())
    for path in folder.glob("runs*"):
        as_first_saved(path, shown=digest)
    then = read_saved(folder)
    assert then.unguarded == ()
    np.testing.assert_equal(vars(then.shown), vars(now.shown))
    for one, other in zip(then.models, now.models, strict=True):
        np.testing.assert_equal(vars(one), vars(other))
    write_saved(folder, made_up.shown(), made_up.model(made_up.shown(), "new"))
    assert len(read_saved(folder).models) == 3


def test_a_family_that_is_not_known_here_costs_one_line_that_says_what_to_do(tmp_path, capsys):
    made_up.results(tmp_path)
    path = tmp_path / "saved" / "shown.safetensors"
    rewritten(path, drop="sha256", about={"space": "shift(2px, 3px) swirl(30)"})
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page")]) == 2
    error = capsys.readouterr().err
    assert "no family is called 'swirl'" in error
    assert "by --families FILE.py, import it in Python, or remove what was saved\n" in error
    assert error.count("\n") == 1


def test_numbers_of_classes_are_kept_whole(tmp_path, monkeypatch):
    """Of a model of 100,000 classes; sixteen bits would make 70,000 another one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.py").write_text(
        "import torch\ndef make():\n    logits = torch.zeros(100_000)\n    logits[70_000] = 9\n"
        "    return lambda images: logits.expand(len(images), -1)\n"
    )
    options = ["--data", "glyphs", "--limit", "2", "--attack", "grid-1x1x2", "--device", "cpu"]
    assert main(["evaluate", "many.py:make", *options, "--save", "saved"]) == 0
    (model,) = read_saved(tmp_path / "saved").models
    assert {*model.predicted.flat, *model.natural.flat, *model.predicted_along.flat} == {70_000}


def test_a_class_without_a_name_is_shown_by_its_number(tmp_path):
    shown = made_up.shown()
    model = made_up.model(shown, "a")
    model = replace(model, predicted=np.full_like(model.predicted, 200))
    write_saved(tmp_path, shown, model)
    example = find_example(Exhibition(shown, (model,)))
    assert example.answer(model).startswith("200 (")
