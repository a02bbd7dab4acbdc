"""What came later leaves what was written before as it was: fields, and the texts of spaces."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

from upright import PAPER, Space, evaluate, zoo
from upright.evaluation import state
from upright.evaluation.question import Question
from upright.evaluation.state import State, load_state, save_state
from upright.later import (
    first_space,
    later_defaults,
    question_now,
    space_text,
    without_defaults,
)
from upright.record_files import read_folder
from upright.records import from_json
from upright.train import Recipe, RunDirectory
from upright.train.any_plan import plan_from_json

ROOT = Path(__file__).parents[1]


def test_what_is_at_its_default_is_left_out_and_the_rest_is_kept() -> None:
    later = later_defaults(Question, "top", "include_identity")
    assert later == {"top": 1, "include_identity": False}
    assert without_defaults({"top": 1, "include_identity": True, "canvas": 0}, later) == {
        "include_identity": True,
        "canvas": 0,
    }
    with pytest.raises(KeyError, match="colour"):
        later_defaults(Question, "colour")


def test_hashes_of_committed_records_are_those_that_were_written_with_them() -> None:
    records = read_folder(ROOT / "results").records
    assert len(records) > 50
    for record in records:
        assert plan_from_json(record.recipe).hash == record.recipe_hash


def test_a_hash_is_that_of_the_fields_as_they_were_first_written() -> None:
    """As it was defined then, from the lines of the files alone."""
    lines = [
        json.loads(line)
        for file in sorted((ROOT / "results").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    cards = [json.loads(file.read_text()) for file in (ROOT / "src").rglob("zoo/entries/*/*.json")]
    lines += [record for card in cards for record in card["records"]]
    assert len(cards) > 5
    assert len(lines) > 60
    later = ("center_crop", "decay", "decay_every", "interpolation", "model_digest")
    later += ("families_digest", "objective_digest", "optimizer", "resize", "view")
    later += (
        "average",
        "cosine",
        "cutout",
        "held_out",
        "jitter",
        "mixup",
        "pretrained",
        "pretrained_digest",
    )
    later += ("smoothing", "teacher", "teacher_digest", "teacher_share", "warmup")
    usual = {name: Recipe().as_json()[name] for name in later}
    for line in lines:
        recipes = [
            line["recipe"][name] for name in ("locnet", "classifier") if name in line["recipe"]
        ] + line["recipe"].get("members", [])
        for values in recipes or [line["recipe"]]:
            first = {
                name: value
                for name, value in values.items()
                if name not in usual or value != usual[name]
            }
            if first["space"] == str(PAPER):  # else the first version could not have written it
                first["space"] = {"max_dx": 3, "max_dy": 3, "max_angle": 30, "unit": "px"}
            text = json.dumps(_whole(first), sort_keys=True, separators=(",", ":"))
            expected = hashlib.sha256(text.encode()).hexdigest()[:12]
            assert Recipe.from_json(values).hash == expected
            if not recipes:
                assert line["recipe_hash"] == expected


def _whole(values: Any) -> Any:
    """JSON in which 1.0 is 1."""
    if isinstance(values, dict):
        return {name: _whole(value) for name, value in values.items()}
    if isinstance(values, list):
        return [_whole(value) for value in values]
    whole = isinstance(values, float) and values.is_integer()
    return int(values) if whole else values


def test_cards_of_the_zoo_have_the_hash_of_their_recipe() -> None:
    names = zoo.names()
    assert names
    for name in names:
        card = zoo.card(name)
        assert {card.recipe.hash} == {record.recipe_hash for record in card.records}


def test_a_later_field_that_differs_tells_questions_and_recipes_apart() -> None:
    plain, asked = Question().for_record(), Question().for_state()
    changes: dict[str, Any] = {"top": 5, "include_identity": True, "view": 24}
    for name, value in changes.items():
        other = Question(**{name: value})
        assert other.for_record() == plain | {name: value}
        assert other.for_state() == asked | {name.replace("_", " "): value}
    hashes = [
        replace(Recipe(decay=0.5), **{name: value}).hash
        for name, value in {
            "resize": 8,
            "decay": 0.9,
            "decay_every": 2,
            "optimizer": "adam",
            "view": 24,
        }.items()
    ]
    assert len({Recipe().hash, *hashes}) == 6
    assert all(field.name in Recipe().as_json() for field in fields(Recipe))


# --- spaces --------------------------------------------------------------------------------------

pixels = st.floats(0, 1e6) | st.integers(0, 500).map(float)
percentages = st.integers(0, 1_000_000).map(lambda number: number / 10_000)
angles = st.floats(0, 360) | st.integers(0, 180).map(float)


@st.composite
def first_spaces(draw: st.DrawFn) -> dict[str, Any]:
    """The four numbers that a space once was; parts of the image as the command line made them."""
    if draw(st.booleans()):
        shifts, unit = [draw(pixels), draw(pixels)], "px"
    else:
        shifts, unit = [draw(percentages) / 100, draw(percentages) / 100], "image"
    same = draw(st.booleans())
    dx, dy = shifts[0], shifts[0] if same else shifts[1]
    return {"max_dx": dx, "max_dy": dy, "max_angle": draw(angles), "unit": unit}


@given(first_spaces())
def test_the_four_numbers_become_the_text_of_the_same_space_and_come_back(
    first: dict[str, Any],
) -> None:
    text = space_text(first)
    space = Space.of(text)
    assert str(space) == text
    part = 1 if first["unit"] == "px" else 100
    limits = [part * first["max_dx"], part * first["max_dy"], first["max_angle"]]
    assert [axis.high for axis in space.axes] == pytest.approx(limits, rel=1e-11)
    assert [axis.low for axis in space.axes] == [-axis.high for axis in space.axes]
    assert [axis.unit for axis in space.axes[:2]] == ["px" if part == 1 else "%"] * 2
    assert first_space(text) == first
    assert Recipe.from_json({"space": first}) == Recipe(space=space)


@pytest.mark.parametrize(
    "text",
    [
        "shift(-1..3px) rotate(30)",
        "shift(3px) rotate(-30..10)",
        "rotate(30) shift(3px)",
        "shift(3px)",
        "rotate(30)",
        "shift(3px) rotate(30) zoom(0.9..1.1)",
        "zoom(0.9..1.1)",
    ],
)
def test_a_space_that_had_no_numbers_is_hashed_by_its_text(text: str) -> None:
    assert str(Space.of(text)) == text
    assert first_space(text) == text
    assert Recipe(space=Space.of(text)).hash != Recipe().hash


@pytest.mark.parametrize(
    "odd",
    [
        None,
        3,
        "shift(3px) rotate(30)",
        {},
        {"max_dx": 3},
        {"max_dx": 3, "max_dy": 3, "max_angle": 30, "unit": "mile"},
        {"max_dx": True, "max_dy": 3, "max_angle": 30, "unit": "px"},
        {"max_dx": -1, "max_dy": 3, "max_angle": 30, "unit": "px"},
        {"max_dx": "3", "max_dy": 3, "max_angle": 30, "unit": "px"},
        {"max_dx": float("nan"), "max_dy": 3, "max_angle": 30, "unit": "px"},
        {"max_dx": 10**400, "max_dy": 3, "max_angle": 30, "unit": "px"},
    ],
)
def test_what_is_no_space_of_the_first_days_stays_as_it_is(odd: object) -> None:
    assert space_text(odd) is odd


FIRST = {"max_dx": 2.0, "max_dy": 2.0, "max_angle": 15.0, "unit": "px"}


def test_an_old_run_is_read_with_its_hash(tmp_path: Path) -> None:
    recipe = Recipe(objective="std", space=Space.of("shift(2px) rotate(15)")).as_json()
    del recipe["view"]
    content = {"recipe": recipe | {"space": FIRST}, "classes": ["a", "b"], "channels": 3}
    (tmp_path / "run.json").write_text(json.dumps({**content, "data_digest": "00"}))
    run = RunDirectory.open(tmp_path)
    assert str(run.recipe.space) == "shift(2px) rotate(15)"
    assert run.recipe.view is None
    assert run.recipe.hash == Recipe(objective="std", space=Space.of("shift(2px) rotate(15)")).hash


def test_old_and_new_records_of_one_question_have_one_key() -> None:
    (line, *_) = (ROOT / "results" / "cifar10.jsonl").read_text().splitlines()
    old = json.loads(line)
    now = json.loads(line)
    now["evaluation"]["space"] = now["recipe"]["space"] = "shift(3px) rotate(30)"
    assert old["evaluation"]["space"] != now["evaluation"]["space"]
    assert from_json(old) == from_json(now)
    assert from_json(old).key == from_json(now).key
    pair = json.loads(line)
    pair["recipe"] = {"locnet": {"space": FIRST}, "classifier": {"space": FIRST}, "oracle": False}
    read = from_json(pair).recipe
    assert read["locnet"]["space"] == read["classifier"]["space"] == "shift(2px) rotate(15)"


def test_old_states_of_every_attack_are_continued(tmp_path: Path) -> None:
    """As they were written: the four numbers, and the steps of a climb in full."""
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data, path = (images, torch.tensor([0, 1, 2, 0])), tmp_path / "state"
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()
    asked: dict[str, Any] = {"attacks": ["grid-2x2x3", "wo-2", "s-pgd"], "state": path}
    first = evaluate(model, data, **asked)
    kept = _any_state(path)
    kept.question["space"] = {"max_dx": 3.0, "max_dy": 3.0, "max_angle": 30.0, "unit": "px"}
    kept.question["attacks"] = {
        "grid-2x2x3": "GridSearch(counts=(2, 2, 3))",
        "wo-2": "RandomSearch(tries=2)",
        "s-pgd": "SpatialPGD(steps=5, step_size=(0.03, 0.03, 0.3), restarts=1)",
    }
    save_state(path, kept)
    asked_about: list[int] = []
    model.register_forward_hook(lambda _, given, __: asked_about.append(len(given[0])))
    again = evaluate(model, data, **asked)
    assert sum(asked_about) == 8  # the model is looked at, twice, and asked no more
    for name, result in first.attacks.items():
        assert again.attacks[name].correct.equal(result.correct)


def _any_state(path: Path) -> State:
    """Read a state whatever it was asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "question_now", lambda _: {})
        found = load_state(path, {})
    with safe_open(path, "pt") as file:
        found.question = json.loads(file.metadata()["question"])
    return found


def test_the_steps_of_a_climb_in_another_space_were_others() -> None:
    attacks = {"s-pgd": "SpatialPGD(steps=5, step_size=(0.03, 0.03, 0.3), restarts=1)"}
    paper = {"max_dx": 3.0, "max_dy": 3.0, "max_angle": 30.0, "unit": "px"}
    now = question_now({"space": paper, "attacks": attacks})
    assert now["attacks"] == Question.of(["s-pgd"]).for_state()["attacks"]
    assert question_now({"space": FIRST, "attacks": attacks})["attacks"] == attacks
    assert question_now({"seed": 3}) == {"seed": 3}
