"""``upright evaluate --save``: what is saved is what the model answers, models side by side."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import made_up_report as made_up
from rigid_spaces import rigid_box
from upright import Pose, evaluate, warp
from upright.cli import main
from upright.data import load_data
from upright.record_files import read
from upright.report.exhibition import record_id
from upright.report.saved import read_saved, write_saved
from upright.sources import load_model
from upright.space import Space
from upright.train import Recipe, train

OPTIONS = ["--data", "glyphs", "--limit", "9"]
ATTACKS = ["--attack", "wo-2", "--attack", "grid-3x2x5"]
GRID = (3, 2, 5)

MODELS = """
import torch
def make(scale=3.0):
    weight = torch.randn(10, 3 * 32 * 32, generator=torch.Generator().manual_seed(int(scale)))
    return lambda images: (images - 0.4).flatten(1) @ weight.T * scale / 10
def other(): return make(5.0)
def larger(): return lambda images: make()(images[..., 2:-2, 2:-2])
"""


@pytest.fixture
def save(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)

    def call(model: str, *options: str) -> str:
        chosen = OPTIONS if "--attack" in options else [*OPTIONS, *ATTACKS]
        command = ["evaluate", model, *chosen, "--device", "cpu", "--save", "saved", *options]
        code = main(command)
        captured = capsys.readouterr()
        assert code == (2 if captured.err else 0)
        assert bool(captured.out) != bool(captured.err)  # an error comes before the evaluation
        return captured.err

    return call


def test_saved_answers_are_those_of_the_model_at_every_pose_of_the_grid(save, tmp_path):
    assert save("models.py:make", "--save-images", "4") == ""
    found = read_saved(tmp_path / "saved")
    (saved,) = found.models
    data, model = load_data("glyphs", limit=9), load_model("models.py:make", device="cpu")
    poses = rigid_box().grid(GRID)
    places = torch.as_tensor(found.shown.places)
    assert sorted(places.tolist()) == list(range(9))  # at random, and each image once
    assert found.shown.images.tolist() == data.images[places[:4]].tolist()
    assert found.shown.labels.tolist() == data.labels[places].tolist()
    for row, place in enumerate(places[:4]):
        image = data.as_float()[place : place + 1]
        logits = torch.stack([model(warp(image, Pose(p)[None]))[0] for p in poses.values])
        most, seen = logits.softmax(1).max(1)
        assert saved.predicted[row].flatten().tolist() == seen.tolist()
        assert saved.confidence[row].flatten() / 255 == pytest.approx(most.numpy(), abs=0.5 / 255)
        natural = model(image).softmax(1)[0]
        assert saved.natural[row] == natural.argmax()
        assert saved.natural_confidence[row] / 255 == pytest.approx(float(natural.max()), abs=0.002)
    axes = [found.shown.grid[name] for name in ("dx", "dy", "angle")]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    assert grid == pytest.approx(poses.values.numpy())


def test_the_saved_worst_pose_is_that_of_the_evaluation(save, tmp_path):
    save("models.py:make")
    found = read_saved(tmp_path / "saved")
    data, model = load_data("glyphs", limit=9), load_model("models.py:make", device="cpu")
    result = evaluate(model, (data.images, data.labels), attacks=["grid-3x2x5"])
    worst = result.attacks["grid-3x2x5"].worst_pose.values[torch.as_tensor(found.shown.places)]
    poses = rigid_box().grid(GRID).values
    assert poses[torch.as_tensor(found.models[0].worst)].tolist() == worst.tolist()


def test_the_summary_of_all_images_agrees_with_the_accuracies(save, tmp_path):
    save("models.py:make", "--save-images", "1", "--json", "result.json")
    (saved,) = read_saved(tmp_path / "saved").models
    result = json.loads((tmp_path / "result.json").read_text())
    assert saved.measured["nat"] == saved.natural_correct.mean() == result["natural_accuracy"]
    assert saved.attack == "grid-3x2x5"
    assert saved.measured[saved.attack] == saved.grid_correct.mean()
    assert saved.measured["wo-2"] == result["attacks"]["wo-2"]["accuracy"]


def test_the_turned_images_have_no_shift(save, tmp_path):
    """Not even where the grid has an even number of shifts, and so no zero among them."""
    save("models.py:make")
    found = read_saved(tmp_path / "saved")
    data, model = load_data("glyphs", limit=9), load_model("models.py:make", device="cpu")
    images = data.as_float()[torch.as_tensor(found.shown.places)]
    for column, angle in enumerate(found.shown.grid["angle"]):
        turned = warp(images, Pose.of(angle=float(angle)))
        seen = found.models[0].predicted_along[:, column]
        assert seen.tolist() == model(turned).argmax(1).tolist()


SPACES = {
    "shift(10%) rotate(20) zoom(0.9..1.1) brightness(0.2)": (2, 1, 2, 3, 2),
    "blur(0..1.5px) perspective(0.2)": (3, 2, 2),
    "zoom(0.8..1.25)": (5,),
}


@pytest.mark.parametrize("text", SPACES)
def test_a_space_of_any_families_is_saved_with_an_axis_for_each_of_its_own(save, tmp_path, text):
    """The answers at the last pose of the grid, and along the axis of most values."""
    counts = SPACES[text]
    grid = "grid-" + "x".join(map(str, counts))
    assert save("models.py:make", "--space", text, "--attack", grid, "--save-images", "2") == ""
    found = read_saved(tmp_path / "saved")
    space = Space.of(text).in_pixels(32, 32)
    assert found.shown.space == space
    assert found.shown.counts == counts
    (saved,), poses = found.models, space.grid(counts)
    assert saved.predicted.shape == saved.confidence.shape == (2, *counts)
    assert torch.equal(found.shown.poses().values, poses.values)
    data, model = load_data("glyphs", limit=9), load_model("models.py:make", device="cpu")
    images = data.as_float()[torch.as_tensor(found.shown.places)]
    last = model(warp(images[:2], poses[-1:])).argmax(1)
    assert saved.predicted.reshape(2, -1)[:, -1].tolist() == last.tolist()
    longest = [axis.name for axis in space.axes][counts.index(max(counts))]
    assert found.shown.along == longest
    for column, value in enumerate(found.shown.grid[longest]):
        seen = model(warp(images, space.pose(**{longest: torch.tensor([value])}))).argmax(1)
        assert saved.predicted_along[:, column].tolist() == seen.tolist()


def test_a_canvas_is_part_of_the_saved_images(save, tmp_path):
    assert save("models.py:larger", "--canvas", "2") == ""
    found = read_saved(tmp_path / "saved")
    data = load_data("glyphs", limit=9).images[torch.as_tensor(found.shown.places)]
    assert found.shown.images.tolist() == F.pad(data, [2] * 4).tolist()


def test_models_go_side_by_side_and_one_that_is_saved_again_replaces_itself(save, tmp_path):
    for model in ("models.py:make", "models.py:other", "models.py:make"):
        assert save(model) == ""
    names = [model.name for model in read_saved(tmp_path / "saved").models]
    assert names == ["models.py:make", "models.py:other"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "8"], "saved holds other images or another grid; name another folder"),
        (["--max-rotation", "20"], "saved holds other images or another grid"),
        (["--space", "shift rotate zoom"], "needs a count of at least 1 for each of its axes"),
        (["--space", "shift(400px) rotate(30)"], "dx goes too far: at most 400 px"),
        (["--fill", "border"], "the explorer moves images with black around them"),
        (["--save-images", "0"], "save_images must be at least 1"),
        (["--save", "models.py"], "cannot be written"),
    ],
)
def test_what_cannot_stand_side_by_side_is_an_error_of_one_line(save, options, message):
    save("models.py:make")
    error = save("models.py:other", *options)
    assert message in error
    assert error.count("\n") == 1


def test_a_model_whose_outputs_have_another_order_is_told_so(tmp_path):
    shown = made_up.shown()
    write_saved(tmp_path, shown, made_up.model(shown, "mine"))
    order = np.array([2, 0, 1])
    other = replace(
        shown,
        classes=tuple(shown.classes[place] for place in order.argsort()),
        labels=order[shown.labels],
        data_digest={"test_images": "1" * 64},
    )
    with pytest.raises(ValueError, match="other classes, or in another order"):
        write_saved(tmp_path, other, made_up.model(other, "theirs"))
    moved = replace(other, images=other.images[::-1])
    with pytest.raises(ValueError, match="other images or another grid"):
        write_saved(tmp_path, moved, made_up.model(moved, "theirs"))


def test_without_a_grid_nothing_can_be_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    command = ["evaluate", "models.py:make", "--data", "glyphs", "--attack", "wo-2"]
    assert main([*command, "--save", "saved"]) == 2
    assert "add an attack such as grid-775" in capsys.readouterr().err


def test_a_saved_run_is_known_by_its_record(save, tmp_path):
    recipe = Recipe(objective="AT(rob, Wo-2)", data="glyphs", train_images=32, model="convnet",
                    steps=2, batch=4, seed=3)  # fmt: skip
    train(recipe, tmp_path / "run")
    assert save("run", "--record", "records.jsonl") == ""
    (record,) = read(tmp_path / "records.jsonl").records
    (saved,) = read_saved(tmp_path / "saved").models
    assert saved.record == record_id(record)
    assert saved.record.startswith(f"{recipe.hash}-3-20")
    assert (saved.method, saved.seed, saved.measured) == ("AT(rob, Wo-2)", 3, record.measured)


def test_arrays_come_back_as_they_were_saved(tmp_path):
    shown = made_up.shown()
    model = made_up.model(shown, "a/b", made_up.RECORDS[0])
    write_saved(tmp_path, shown, model)
    found = read_saved(tmp_path)
    for before, after in ((shown, found.shown), (model, found.models[0])):
        for name, value in vars(before).items():
            again = getattr(after, name)
            assert type(again) is type(value)
            np.testing.assert_equal(again, value)  # dicts of arrays, too
    assert list(found.shown.grid) == ["dx", "dy", "angle"]


def test_all_who_save_the_same_images_write_the_same_file(tmp_path):
    """Or a model would be of images that another process has replaced."""
    shown = made_up.shown()
    for place in range(20):
        write_saved(tmp_path / str(place), shown, made_up.model(shown, "a"))
    assert len({path.read_bytes() for path in tmp_path.glob("*/shown.safetensors")}) == 1


def test_a_damaged_file_or_one_of_other_images_is_named(tmp_path):
    shown = made_up.shown()
    path = write_saved(tmp_path, shown, made_up.model(shown, "a"))
    content = path.read_bytes()
    path.write_bytes(content[:200])
    with pytest.raises(ValueError, match=f"{path.name} was not saved by"):
        read_saved(tmp_path)
    path.write_bytes(content)
    other = made_up.shown(seed=1)
    stranger = write_saved(tmp_path / "other", other, made_up.model(other, "b"))
    stranger.rename(tmp_path / stranger.name)
    with pytest.raises(ValueError, match=f"{stranger.name} belongs to other images"):
        read_saved(tmp_path)


def test_a_folder_without_images_says_how_to_make_them(tmp_path):
    with pytest.raises(ValueError, match="upright evaluate --save"):
        read_saved(tmp_path)
