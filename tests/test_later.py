"""Fields that came later leave what was written before them as it was."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from upright.evaluation.question import Question
from upright.later import later_defaults, without_defaults
from upright.records import read_folder
from upright.reproduce import Settings
from upright.reproduce.pair import recipe_from_json
from upright.train import Recipe

ROOT = Path(__file__).parents[1]


def test_what_is_at_its_default_is_left_out_and_the_rest_is_kept() -> None:
    later = later_defaults(Settings, "top", "include_identity")
    assert later == {"top": 1, "include_identity": False}
    assert without_defaults({"top": 1, "include_identity": True, "canvas": 0}, later) == {
        "include_identity": True,
        "canvas": 0,
    }
    with pytest.raises(KeyError, match="colour"):
        later_defaults(Settings, "colour")


def test_hashes_of_committed_records_are_those_that_were_written_with_them() -> None:
    records = read_folder(ROOT / "results").records
    assert len(records) > 50
    for record in records:
        assert recipe_from_json(record.recipe).hash == record.recipe_hash


def test_a_later_field_that_differs_tells_questions_and_recipes_apart() -> None:
    plain, asked = Settings().as_json(), Question(attacks={}).as_json()
    changes: dict[str, Any] = {"top": 5, "include_identity": True}
    for name, value in changes.items():
        assert Settings(**{name: value}).as_json() == plain | {name: value}
        other = Question(attacks={}, **{name: value}).as_json()
        assert other == asked | {name.replace("_", " "): value}
    hashes = [
        replace(Recipe(decay=0.5), **{name: value}).hash
        for name, value in {
            "resize": 8,
            "decay": 0.9,
            "decay_every": 2,
            "optimizer": "adam",
        }.items()
    ]
    assert len({Recipe().hash, *hashes}) == 5
    assert all(field.name in Recipe().as_json() for field in fields(Recipe))
