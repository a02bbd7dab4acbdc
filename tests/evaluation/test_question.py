"""What an evaluation is asked, and what is written of it: one question, two files."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from bar_images import bars, trained_network
from upright import evaluate
from upright.evaluation import Question, examine
from upright.evaluation.question import LATER
from upright.space import Space

CHANGED: dict[str, Any] = {
    "attacks": Question.of(["wo-2"]).attacks,
    "only_accuracy": True,
    "space": Space.of("shift(2px) rotate(30)"),
    "fill": "border",
    "interpolation": "bicubic",
    "canvas": 4,
    "view": 6,
    "top": 2,
    "include_identity": True,
    "limit": 3,
    "sample": 3,
    "seed": 7,
    "drawn_seed": 7,
    "split": "train",
    "resize": 9,
    "center_crop": 8,
    "precision": "float16",
    "compile": True,
}
TAKEN = {"split", "resize", "center_crop", "precision"}
"""Data and network of a state are taken already: it looks at them themselves."""
NOT_RECORDED = {"attacks", "only_accuracy"}
"""Attacks are what a record measured; which images fell is in no record."""


@pytest.mark.parametrize("name", [each.name for each in fields(Question)])
def test_each_word_tells_questions_apart_where_it_is_to(name: str) -> None:
    plain, other = Question(), replace(Question(), **{name: CHANGED[name]})
    assert plain != other
    assert (plain.for_state() != other.for_state()) is (name not in TAKEN)
    if name != "drawn_seed":
        differs = plain.for_record() != other.for_record()
        assert differs is (name not in NOT_RECORDED)


def test_records_have_all_words_but_the_latest_by_their_own_names() -> None:
    changed = {name: value for name, value in CHANGED.items() if name != "drawn_seed"}
    written = Question(**changed).for_record()
    assert written == {
        name: str(value) if name == "space" else value
        for name, value in changed.items()
        if name not in NOT_RECORDED
    }
    assert written.keys() - Question().for_record().keys() == LATER.keys()


def test_a_seed_draws_as_a_generator_with_that_seed() -> None:
    network, data = trained_network(), bars(8, 3)
    poses = [
        evaluate(
            network, data, attacks=["wo-3"], generator=torch.Generator().manual_seed(7)
        ).attacks["wo-3"],
        examine(network, data, Question.of(["wo-3"], seed=7)).attacks["wo-3"],
        examine(network, data, Question.of(["wo-3"], seed=8)).attacks["wo-3"],
    ]
    one, same, other = (found.worst_pose for found in poses)
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.values.equal(same.values)
    assert not one.values.equal(other.values)


def test_a_state_of_a_call_is_continued_by_its_question(tmp_path) -> None:
    network, data, path = trained_network(), bars(8, 3), tmp_path / "state"
    words: dict[str, Any] = {"space": "shift(1px)", "fill": "border", "top": 2, "limit": 6}
    first = evaluate(network, data, attacks=["wo-3"], **words, state=path)
    asked: list[int] = []
    hook = network.register_forward_hook(lambda _, given, __: asked.append(len(given[0])))
    again = examine(network, data, Question.of(["wo-3"], **words), state=path)
    hook.remove()
    assert sum(asked) == 2 * 6  # the model is looked at, twice, and asked no more
    assert again.attacks["wo-3"].correct.equal(first.attacks["wo-3"].correct)


def test_what_a_generator_drew_is_in_no_record() -> None:
    question = Question.of(["wo-3"], generator=torch.Generator().manual_seed(7))
    with pytest.raises(ValueError, match="ask with a seed"):
        question.for_record()
