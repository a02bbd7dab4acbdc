"""A network of the zoo as a teacher: it says what it answers, and its weights are noted."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tiny_runs import Call, colours
from tiny_zoo import NAME
from upright import zoo
from upright.objective import LocNet
from upright.train import Recipe, load_network, train
from upright.train.learner import Learner
from upright.train.weight_files import weights_digest
from upright.zoo import Entry, pack

TAUGHT = Recipe(
    objective="L2(rob, Wo-2)",
    data="glyphs",
    train_images=24,
    model="convnet0.25",
    steps=2,
    batch=8,
    teacher=f"zoo:{NAME}",
)


@pytest.mark.usefixtures("entry")
@pytest.mark.parametrize("changes", [{}, {"cutout": 4}], ids=["asked once", "in each step"])
def test_labels_are_what_the_network_of_the_zoo_answers(changes: dict[str, int]) -> None:
    one = Learner(replace(TAUGHT, **changes), TAUGHT.load_data(), torch.device("cpu"))
    one.make_ready()
    one._prepare(0)
    images, labels = one._examples(one._rows)
    with torch.no_grad():
        torch.testing.assert_close(labels, zoo.load(NAME)(images).softmax(1))


def test_a_recipe_notes_the_weights_of_the_zoo_and_refuses_others(
    entry: Entry, tmp_path: Path
) -> None:
    recipe = train(TAUGHT, tmp_path / "run").recipe
    assert recipe.teacher == f"zoo:{NAME}"
    assert recipe.teacher_digest == weights_digest(entry.load().state_dict())
    assert train(recipe, tmp_path / "again").recipe == recipe
    replace_weights(entry)
    with pytest.raises(ValueError, match=f"weights of zoo:{NAME} are not those of the recipe's"):
        train(recipe, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def replace_weights(entry: Entry) -> None:
    """Put another network of the same shape into the zoo, under the same name."""
    network, card = entry.load(), entry.card()
    with torch.no_grad():
        next(network.parameters()).neg_()
    for file in (entry.card_file, entry.weights_file):
        file.unlink()
    content = pack(network)
    digest = hashlib.sha256(content).hexdigest()
    entry.write(replace(card, weights_digest=digest), content)


def test_a_packed_run_is_another_teacher_than_the_run(entry, small_run, tmp_path: Path) -> None:
    """Its weights are rounded, so that a recipe of the one must not take the other."""
    recipe = train(replace(TAUGHT, teacher=str(small_run.path)), tmp_path / "run").recipe
    assert recipe.teacher_digest == weights_digest(load_network(small_run.path).state_dict())
    with pytest.raises(ValueError, match="not those of the recipe's teacher"):
        train(replace(recipe, teacher=f"zoo:{entry.name}"), tmp_path / "other")


@pytest.mark.usefixtures("entry")
def test_other_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 10 classes .* has 3 classes and .* on such data"):
        train(replace(TAUGHT, train_images=None), tmp_path / "run", data=colours())
    assert not (tmp_path / "run").exists()


def test_a_locnet_teaches_no_classes(tmp_path: Path) -> None:
    locnet = replace(TAUGHT, teacher="", teacher_share=0.0, objective=LocNet("black"))
    train(locnet, tmp_path / "locnet")
    with pytest.raises(ValueError, match=r"is a LocNet, which .* no classes; give a classifier"):
        train(replace(TAUGHT, teacher=str(tmp_path / "locnet")), tmp_path / "run")


@pytest.mark.usefixtures("entry")
def test_the_command_takes_it_and_tells_what_there_is(upright: Call) -> None:
    options = ("--data", "glyphs", "--train-images", 24, "--model", "convnet0.25")
    options = ("train", "std*", *options, "--steps", 2, "--batch", 8)
    code, _, err = upright(*options, "--teacher", f"zoo:{NAME}", "--out", "run")
    assert (code, err) == (0, "")
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert (recipe["teacher"], len(recipe["teacher_digest"])) == (f"zoo:{NAME}", 64)
    for name, told in (
        ("zoo:glyphs/none", f"the zoo has no model 'glyphs/none': it has .*{NAME}"),
        ("timm:resnet18", "no teacher is called 'timm:resnet18'.*RUN-DIRECTORY, zoo:DATASET/NAME"),
    ):
        code, _, err = upright(*options, "--teacher", name, "--out", "other")
        assert (code, err.count("\n")) == (2, 1)
        assert re.search(told, err)
        assert not Path("other").exists()
