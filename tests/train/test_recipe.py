"""Recipes: equal runs have equal recipes and hashes, and each field counts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigid_spaces import rigid, rigid_box
from upright.space import Space
from upright.train import Recipe, published

# For each field a value other than the default.
OTHERS: dict[str, Any] = {
    "objective": "KL(rob, Wo-20)",
    "data": "svhn",
    "train_images": 1000,
    "model": "resnet14",
    "space": rigid(3, 20),
    "steps": 79_999,
    "batch": 128,
    "learning_rate": 0.05,
    "drops": (0.5,),
    "decay": 0.99,
    "decay_every": 2,
    "optimizer": "adam",
    "interpolation": "bicubic",
    "resize": 40,
    "center_crop": 32,
    "view": 24,
    "model_digest": "0" * 64,
    "families_digest": "1" * 64,
    "objective_digest": "4" * 64,
    "momentum": 0.8,
    "weight_decay": 1e-4,
    "flips": False,
    "max_shift": 2,
    "precision": "bfloat16",
    "seed": 1,
    "held_out": True,
    "cosine": True,
    "warmup": 500,
    "average": 0.999,
    "smoothing": 0.1,
    "jitter": Space.of("zoom(0.9..1.1)"),
    "cutout": 8,
    "mixup": 0.5,
    "teacher": "runs/other",
    "teacher_share": 0.25,
    "teacher_digest": "2" * 64,
    "pretrained": "weights.safetensors",
    "pretrained_digest": "3" * 64,
}

RECIPES = st.builds(
    Recipe,
    objective=st.sampled_from(["std", "std*", "AT(mix, S-PGD)", "KL-C(nat, Wo-3; λ=0.25)"]),
    data=st.sampled_from(["glyphs", "npz:some file.npz", "folder:größe"]),
    train_images=st.none() | st.integers(1, 10**6),
    space=st.builds(
        rigid,
        st.floats(0, 100),
        st.floats(0, 180),
        unit=st.sampled_from(["px", "image"]),
    )
    | st.sampled_from(["rotate(-10..30)", "shift(1px, 2px) zoom", "blur(2px) shift(10%)"]),
    view=st.none() | st.integers(1, 300),
    steps=st.integers(1, 10**9),
    learning_rate=st.floats(1e-9, 1e3),
    drops=st.lists(st.floats(0.01, 1), max_size=4).map(tuple),
    decay=st.sampled_from([0.5, 0.99, 1.0]),
    decay_every=st.integers(1, 10**6),
    optimizer=st.sampled_from(["sgd", "adam"]),
    interpolation=st.sampled_from(["nearest", "bilinear", "bilinear-twice"]),
    cosine=st.booleans(),
    average=st.floats(0, 0.9999),
    smoothing=st.floats(0, 1),
    flips=st.booleans(),
    max_shift=st.none() | st.integers(0, 8),
    seed=st.integers(0, 2**63),
)


@given(RECIPES)
def test_json_gives_the_recipe_back_with_its_hash(recipe: Recipe) -> None:
    text = json.dumps(recipe.as_json())
    again = Recipe.from_json(json.loads(text))
    assert again == recipe
    assert again.hash == recipe.hash
    assert recipe.differences(again) == []


@given(RECIPES, RECIPES)
def test_hashes_are_equal_where_recipes_are(first: Recipe, second: Recipe) -> None:
    assert (first.hash == second.hash) == (first == second)
    assert bool(first.differences(second)) == (first != second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"objective": "KL(rob, Wo-10)"}, {"objective": " KL( rob,wo-10 ; lambda=8.0 ) "}),
        ({"objective": "std*"}, {"objective": "AT(rob, rnd)"}),
        ({"objective": "std"}, {"objective": "std", "max_shift": 4}),
        ({"objective": "std*"}, {"objective": "std*", "max_shift": 0}),
        ({"learning_rate": 1, "weight_decay": 0}, {"learning_rate": 1.0, "weight_decay": 0.0}),
        ({"drops": (0.5, 1)}, {"drops": (0.5, 1.0)}),
        ({"space": rigid(2, 10)}, {"space": rigid(2.0, 10.0)}),
        ({}, {"space": rigid_box(), "momentum": 0.9, "seed": 0}),
        ({}, {"decay": 1, "decay_every": 7}),
    ],
)
def test_how_a_recipe_is_spelt_does_not_matter(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Recipe(**one) == Recipe(**other)
    assert Recipe(**one).hash == Recipe(**other).hash


def test_the_order_of_fields_in_a_file_does_not_matter() -> None:
    recipe = Recipe(seed=3)
    backwards = dict(reversed(recipe.as_json().items()))
    assert list(backwards) != list(recipe.as_json())
    assert Recipe.from_json(backwards).hash == recipe.hash


def test_every_field_is_among_those_that_are_changed_here() -> None:
    assert set(OTHERS) == {field.name for field in dataclasses.fields(Recipe)}


@pytest.mark.parametrize("field", OTHERS)
def test_each_field_counts(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if field in ("families_digest", "objective_digest"):  # which only code of one's own has
        monkeypatch.setattr("upright.train.recipe.digest_of_code", lambda *_: "9" * 64)
    # Without a decay nothing is done every so many steps, without a teacher nothing is its share,
    # and a cosine has neither decay nor drops.
    base = Recipe(decay=0.9, teacher="runs/one", teacher_share=0.5)
    if field == "cosine":
        base = Recipe(drops=())
    changed = replace(base, **{field: OTHERS[field]})
    assert changed.hash != base.hash
    (difference,) = base.differences(changed)
    assert difference.startswith(f"{field} ")
    assert repr(changed.as_json()[field]) in difference


def test_a_hash_is_twelve_hexadecimal_digits() -> None:
    assert len(Recipe().hash) == 12
    assert int(Recipe().hash, 16) >= 0


def test_the_defaults_are_the_papers() -> None:
    recipe = Recipe()
    assert (recipe.momentum, recipe.weight_decay, recipe.batch) == (0.9, 2e-4, 64)
    assert recipe.flips
    assert recipe.space == rigid(3, 30)
    # 80 000 steps: 0.1, then 0.01 from 40 000 on, then 0.001 from 60 000 on.
    rates = {step: recipe.learning_rate_at(step) for step in (0, 39_999, 40_000, 59_999, 60_000)}
    assert rates == {0: 0.1, 39_999: 0.1, 40_000: 0.01, 59_999: 0.01, 60_000: 0.001}
    assert recipe.learning_rate_at(79_999) == 0.001


@given(steps=st.integers(1, 400))
def test_each_drop_comes_after_its_part_of_the_steps(steps: int) -> None:
    recipe = Recipe(steps=steps, learning_rate=1)
    rates = [recipe.learning_rate_at(step) for step in range(steps)]
    half, three_quarters = -(-steps // 2), -(-3 * steps // 4)  # rounded up
    expected = [1] * half + [0.1] * (three_quarters - half) + [0.01] * (steps - three_quarters)
    assert rates == pytest.approx(expected)


def test_the_decay_multiplies_the_rate_after_every_so_many_steps() -> None:
    recipe = Recipe(steps=8, learning_rate=1, drops=(0.5,), decay=0.5, decay_every=3)
    rates = [recipe.learning_rate_at(step) for step in range(8)]
    assert rates == pytest.approx([1, 1, 1, 0.5, 0.05, 0.05, 0.025, 0.025])


def test_recipes_of_before_some_fields_were_there_keep_their_hash() -> None:
    # The hash as it was defined then, of all fields that there were then.
    later = ("decay", "decay_every", "optimizer", "interpolation")
    later += ("resize", "center_crop", "model_digest", "families_digest", "view")
    later += ("held_out", "cosine", "warmup", "average", "smoothing", "cutout", "jitter", "mixup")
    later += ("teacher", "teacher_share", "teacher_digest", "pretrained", "pretrained_digest")
    later += ("objective_digest",)
    then = [name for name in OTHERS if name not in later]
    for changes in ({}, {"objective": "std", "learning_rate": 0.05, "seed": 3}):
        recipe = Recipe(**changes)
        fields = {name: recipe.as_json()[name] for name in then}
        fields["space"] = {"max_dx": 3, "max_dy": 3, "max_angle": 30, "unit": "px"}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        assert recipe.hash == hashlib.sha256(text.encode()).hexdigest()[:12]
        assert Recipe.from_json(fields) == recipe
    assert Recipe().hash == "3a2f019ec439"


@pytest.mark.parametrize("model", ["stn10", "stn-affine18", "etn34", "etn10x0.25"])
def test_transformers_were_published_with_adam_for_300_epochs(model: str) -> None:
    recipe = Recipe(objective="std*", data="svhn", model=model, seed=3, precision="bfloat16")
    theirs = published(recipe, 73_257)
    assert (theirs.steps, theirs.batch) == (300 * 572, 128)
    assert (theirs.optimizer, theirs.weight_decay) == ("adam", 0)
    assert (theirs.flips, theirs.max_shift) == (False, 0)
    rates = [theirs.learning_rate_at(epoch * 572) for epoch in (0, 1, 299)]
    assert rates == pytest.approx([0.002, 0.00198, 0.002 * 0.99**299])
    assert theirs.learning_rate_at(571) == 0.002
    assert (str(theirs.objective), theirs.model, theirs.seed) == ("std*", model, 3)


def test_fewer_steps_are_the_beginning_of_the_published_run() -> None:
    recipe = Recipe(objective="std*", data="svhn", model="etn34")
    whole, begun = published(recipe, 73_257), published(recipe, 73_257, steps=1000)
    assert whole.differences(begun) == ["steps 1000 instead of 171600"]
    rates = [run.learning_rate_at(step) for run in (whole, begun) for step in range(1000)]
    assert rates[:1000] == rates[1000:]


def test_a_published_rate_falls_along_no_cosine() -> None:
    recipe = Recipe(model="etn34", cosine=True)
    assert published(recipe, 1280) == published(Recipe(model="etn34"), 1280)


def test_other_networks_keep_their_recipe() -> None:
    assert published(Recipe(), 50_000) == Recipe()
    assert published(Recipe(model="gresnet44"), 50_000) == Recipe(model="gresnet44")


def test_without_drops_the_learning_rate_stays() -> None:
    recipe = Recipe(steps=10, drops=())
    assert {recipe.learning_rate_at(step) for step in range(10)} == {0.1}


@pytest.mark.parametrize(
    ("objective", "shift"),
    [("std", 4), ("std*", 0), ("AT(rob, Wo-10)", 0), ("KL(nat, rnd)", 0), ("L2(mix, S-PGD)", 0)],
)
def test_only_std_is_shifted(objective: str, shift: int) -> None:
    assert Recipe(objective=objective).max_shift == shift
    assert Recipe(objective=objective, max_shift=1).max_shift == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"sede": 1, "optimiser": "adam"},
            "a recipe has no optimiser, sede; it has average, batch",
        ),
        ({"steps": "many"}, "steps is 'many'"),
        ({"seed": "0"}, "seed is '0'"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"batch": True}, "batch is True"),
        ({"flips": 1}, "flips is 1"),
        ({"momentum": None}, "momentum is None"),
        ({"model": 32}, "model is 32"),
        ({"train_images": "all"}, "train_images is 'all'"),
        ({"space": {"max_dz": 1}}, "a space is a text such as"),
        ({"space": [3, 3, 30]}, "space is"),
        ({"drops": 0.5}, "drops is 0.5"),
        ({"drops": ["half"]}, "drops is"),
        ({"objective": "KL(rob)"}, "cannot read the objective 'KL(rob)'"),
        ({"objective": 8}, "objective is 8"),
    ],
)
def test_a_field_that_is_unknown_or_of_the_wrong_kind_is_named(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Recipe.from_json(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"batch": -1}, "batch"),
        ({"drops": (0.5, 1.5)}, "drops"),
        ({"drops": (0.0,)}, "drops"),
        ({"precision": "float16"}, "precision"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"weight_decay": -1e-4}, "weight_decay"),
        ({"momentum": float("inf")}, "momentum"),
        ({"max_shift": -1}, "max_shift"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"decay": -0.5}, "decay"),
        ({"decay": 0.5, "decay_every": 0}, "decay_every"),
        ({"train_images": 0}, "train_images"),
        ({"resize": 0}, "resize"),
        ({"center_crop": -1}, "center_crop"),
    ],
)
def test_a_value_that_cannot_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**values)
