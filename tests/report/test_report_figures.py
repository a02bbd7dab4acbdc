"""Which records a figure draws together, and the files that figures become."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import made_up_report as made_up
from made_up_records import made_up_record, paper_recipe
from rigid_spaces import rigid
from upright.cli import main
from upright.later import LATER_IN_RECIPES, later_defaults
from upright.record_files import append
from upright.records import Reported, from_json, to_json
from upright.report.comparable import comparable, comparable_times
from upright.report.data import runtime_points
from upright.report.exhibition import Exhibition, told_apart
from upright.report.figures import (
    all_drawings,
    draw_along,
    draw_curves,
    draw_example,
    draw_penalty_weights,
    draw_runtime,
    find_example,
)
from upright.report.page.payload import payload
from upright.report.runs import group_runs
from upright.report.saved import read_saved, write_saved
from upright.train import Recipe
from upright.warp import warp

GRID = {"nat": 0.9, "grid-775": 0.7}
FIRST = {"max_dx": 3, "max_dy": 3, "max_angle": 30, "unit": "px"}
"""The paper's space, as the first records have it."""
METHODS = ("std", "std*", "AT(rob, Wo-10)", "KL(rob, Wo-10)", "KL(rob, Wo-10; λ=2)")


def record(objective, evaluation=None, /, *, recipe=None, measured=GRID, **changes):
    made = paper_recipe("cifar10", objective, **(recipe or {}))
    return made_up_record(made, measured, evaluation=evaluation, **changes)


USUAL = tuple(record(method) for method in METHODS)
OTHER_RECIPES = (
    *({"steps": 4000}, {"batch": 128}, {"model": "gresnet44"}, {"learning_rate": 0.05}),
    *({"optimizer": "adam"}, {"decay": 0.9}, {"max_shift": 2}, {"train_images": 1000}),
    *({"space": rigid(3, 20)}, {"flips": False}, {"data": "svhn"}),
)
OTHER_EVALUATIONS = (
    *({"split": "train"}, {"fill": "border"}, {"canvas": 4}, {"interpolation": "nearest"}),
    *({"space": "shift(3px) rotate(20)"}, {"space": "shift(3px) rotate(30) zoom(0.9..1.1)"}),
    {"resize": 64},
    {"weights": "bfloat16"},  # rounded, as the zoo has them
)
STRANGERS = (
    *(record("std*", recipe=recipe, dataset="cifar10") for recipe in OTHER_RECIPES),
    *(record("std*", evaluation) for evaluation in OTHER_EVALUATIONS),
    record("std*", {"limit": 1000}, images=1000, data_digest={"test_images": "of 1,000"}),
    record("std*", images=9_999),
    record("std*", data_digest={"test_images": "of others"}),
)


@pytest.mark.parametrize("stranger", STRANGERS, ids=range(len(STRANGERS)))
def test_a_record_of_another_setting_is_in_no_figure(stranger):
    assert comparable([stranger, *USUAL]) == USUAL


@pytest.mark.parametrize(
    "alike",
    [
        record("std*", recipe={"seed": 3}),
        record("std*", recipe={"precision": "bfloat16"}),
        record("std*", {"precision": "float16", "seed": 7}),
        record("std*", {"compile": True}),
        record("std*", {"limit": 10_000, "resize": None}),  # the digest says that it is all
        from_json(to_json(record("std*", {"space": FIRST}))),
        record("LocNet(black)"),
    ],
)
def test_objective_seed_and_precision_may_differ(alike):
    assert comparable([*USUAL, alike]) == (*USUAL, alike)


def test_a_recipe_from_before_a_field_is_that_of_the_field_s_default():
    assert later_defaults(Recipe, *LATER_IN_RECIPES) == LATER_IN_RECIPES
    old = {name: value for name, value in USUAL[0].recipe.items() if name not in LATER_IN_RECIPES}
    records = (replace(USUAL[0], recipe=old), *USUAL[1:])
    assert comparable(records) == records
    (run,) = group_runs([records[0], record("std", recipe={"seed": 1})])
    assert len(run.records) == 2


def test_the_setting_is_that_of_most_runs_but_the_paper_s_comes_first():
    short = tuple(record(method, recipe={"steps": 4000}) for method in METHODS[:3])
    twice = (*short[:2], *short[:2], *short[:2])  # evaluated again and again: still two runs
    assert comparable([*short, *USUAL]) == USUAL
    assert comparable([*USUAL[:2], *short]) == short
    assert comparable([*twice, *USUAL[:3]]) == USUAL[:3]
    known = replace(USUAL[0], reported={"nat": Reported(mean=0.9, stderr=None, table="x")})
    assert comparable([*short, known, USUAL[1]]) == (known, USUAL[1])


def test_each_data_set_has_a_setting_of_its_own():
    short = tuple(replace(each, dataset="mine", steps=4000) for each in USUAL)
    assert comparable([*USUAL, *short]) == (*USUAL, *short)


def test_a_record_without_the_accuracies_of_figures_has_no_say():
    short = [record(method, recipe={"steps": 4}, measured={"nat": 1.0}) for method in METHODS]
    assert comparable([*short, USUAL[0]]) == USUAL[:1]


@pytest.mark.parametrize(
    "stranger",
    [record("std*", hardware="a laptop"), record("std*", recipe={"precision": "bfloat16"})],
)
def test_times_are_those_of_one_device_and_one_precision(stranger):
    assert comparable([*USUAL, stranger]) == (*USUAL, stranger)
    assert comparable_times([stranger, *USUAL]) == USUAL
    assert len(runtime_points([stranger, *USUAL])) == len(USUAL)


def test_times_of_runs_that_trained_alone_stand_without_the_others():
    shared = tuple(replace(record, beside=4) for record in USUAL)
    assert comparable_times(shared) == shared
    alone = replace(USUAL[0], beside=1)
    assert comparable_times([alone, *shared[1:]]) == (alone,)


def points_drawn(drawing, panel=0):
    """x and y of all points with a marker, in one panel."""
    lines = drawing.figure.axes[panel].get_lines()
    return {
        (round(float(x), 6), round(float(y), 6))
        for line in lines
        if line.get_marker() not in (None, "None", "|", "_")
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }


def test_the_figures_draw_one_setting_and_name_it():
    stranger = record("std*", recipe={"steps": 4000, "model": "gresnet44"}, train_seconds=1.0)
    weighty = record("KL(rob, Wo-10; λ=4)", recipe={"steps": 4000})
    records = [stranger, weighty, *USUAL]
    runtime = draw_runtime(runtime_points(records), "cifar10")
    assert points_drawn(runtime) == {(round(400 / 60, 6), 70.0)}
    weights = draw_penalty_weights(records, "Wo-k")
    assert points_drawn(weights) == {(8.0, 70.0), (2.0, 70.0)}
    for drawing in (runtime, weights):
        assert "resnet32, 80,000 steps with batches of 64, evaluated on 10,000" in drawing.caption
    assert "side by side" in runtime.caption
    assert "equal parts of its time" in runtime.caption


HOSTILE = ("x/../../../../escaped", "/escaped", "npz:/abs/x.npz", "a$\\frac$b", "", "..")


def test_no_name_of_a_data_set_leads_out_of_the_folder(tmp_path):
    records = [replace(each, dataset=name) for name in HOSTILE for each in made_up.RECORDS[:2]]
    for each in records:
        append(tmp_path / "in" / "records.jsonl", each)
    out = tmp_path / "in" / "deep" / "out"
    assert main(["report", str(tmp_path / "in"), "--out", str(out)]) == 0
    before = {tmp_path / "in" / "records.jsonl", out / "index.html"}
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {path.parent for path in written} == {out / "figures"}
    drawn = [path for path in written if path.name.startswith("runtime")]
    assert len(drawn) == 2 * len(HOSTILE)  # each of its own, as SVG and as PNG


@pytest.mark.parametrize(
    ("space", "counts", "label", "ticks"),
    [
        ("shift(2px) rotate(30)", (3, 3, 5), "angle in degrees", ["−30", "0", "30"]),
        ("rotate(30) zoom(0.8..1.25)", (3, 5), "zoom", ["0.8x", "1x", "1.25x"]),
        ("blur(0..2px)", (4,), "blur in px", ["0", "2"]),
        ("brightness(0.2) shear(10) zoom", (5, 1, 1, 1), "brightness", ["−0.2", "0", "0.2"]),
    ],
)
def test_a_figure_is_drawn_along_the_axis_of_most_values(space, counts, label, ticks):
    shown = made_up.shown(space, counts)
    drawing = draw_along(Exhibition(shown, (made_up.model(shown, "mine"),)))
    axes = drawing.figure.axes[0]
    assert drawing.figure.get_supxlabel() == label
    assert [text.get_text() for text in axes.get_xticklabels()] == ticks
    assert drawing.name == f"along-{shown.along}-made-up"
    assert axes.get_images()[0].get_array().shape[:2] == (20, max(counts))


@pytest.mark.parametrize("counts", [(3, 5, 7), (2, 2, 4)])
def test_curves_lead_from_natural_to_worst_case_accuracy(counts):
    shown = made_up.shown(counts=counts)
    models = [made_up.model(shown, name, errs=errs) for name, errs in (("a", 0.02), ("b", 0.2))]
    drawing = draw_curves(Exhibition(shown, tuple(models)))
    by_size, by_count = drawing.figure.axes
    labels = shown.labels[: len(shown.images)]
    for number, model in enumerate(models):
        right = model.predicted.reshape(len(labels), -1) == labels[:, None]
        natural = model.natural == labels
        sizes, within = by_size.get_lines()[number].get_data()
        assert (sizes[0], sizes[-1]) == (0, 1)
        has_identity = counts == (3, 5, 7)  # whose middle the made-up models see as it is
        worst = right.all(1) if has_identity else right.all(1) & natural
        assert within[0] == pytest.approx(100 * natural.mean())
        assert within[-1] == pytest.approx(100 * worst.mean())
        drawn, expected = by_count.get_lines()[number].get_data()
        assert (drawn[0], drawn[-1]) == (1, np.prod(counts))
        assert expected[0] == pytest.approx(100 * right.mean())
        assert expected[-1] == pytest.approx(100 * right.all(1).mean())
        assert max(np.diff(within).max(), np.diff(expected).max()) <= 1e-9


def test_a_single_pose_has_no_curve():
    shown = made_up.shown("rotate(30)", (1,))
    assert draw_curves(Exhibition(shown, (made_up.model(shown, "mine"),))) is None


def test_the_example_says_in_words_what_its_pose_changes():
    space = "shift(2px) rotate(20) zoom(0.8..1.25) brightness(0.2)"
    shown = made_up.shown(space, (3, 3, 3, 3, 3))
    model = made_up.model(shown, "mine")
    at = np.ravel_multi_index((0, 1, 2, 0, 1), shown.counts)
    found = find_example(Exhibition(shown, (replace(model, worst=np.full(7, at)),)))
    assert found.pose_text() == "dx −2 px, angle 20 degrees, zoom 0.8x"
    pose = shown.space.pose(dx=-2.0, angle=20.0, zoom=math.log(0.8))
    image = torch.as_tensor(shown.images[found.image])[None] / 255
    assert found.moved() == pytest.approx(warp(image, pose)[0].numpy(), abs=1e-5)
    assert draw_example(found) is not None


def test_the_example_of_a_single_model_is_an_image_that_its_worst_pose_tips_over():
    shown = made_up.shown()
    right = made_up.model(shown, "mine", errs=0)
    predicted, worst, tipped = right.predicted.copy(), right.worst.copy(), 4
    predicted[tipped].flat[-1] = (shown.labels[tipped] + 1) % 3
    worst[tipped] = predicted[tipped].size - 1
    # The least sure of all answers: what is right is no better for being sure.
    confidence = np.where(predicted == right.predicted, 255, 90).astype(np.uint8)
    model = replace(right, predicted=predicted, worst=worst, confidence=confidence)
    assert find_example(Exhibition(shown, (model,))).image == tipped


def test_what_stands_above_an_example_is_not_cut_off():
    shown = made_up.shown("shift(3px) rotate(30) zoom(0.8..1.25) brightness(0.2)", (3,) * 5)
    corner = np.zeros(7, dtype=np.int64)
    models = [
        replace(made_up.model(shown, name, errs=errs), worst=corner)
        for name, errs in (("weak", 0.9), ("strong", 0.1))
    ]
    drawing = draw_example(find_example(Exhibition(shown, tuple(models))))
    texts = [
        (float(size), float(y))
        for size, y in re.findall(
            r'<text style="font-size: (\S+)px[^>]*translate\(\S+ (\S+)\)', drawing.svg
        )
    ]
    assert len(texts) == 4  # a pose of two lines, and two answers
    assert all(y >= size for size, y in texts)


def test_folders_of_one_data_set_are_told_apart_by_their_spaces():
    turned, zoomed = made_up.shown(), made_up.shown("zoom(0.8..1.25)", (3,))
    other = replace(turned, dataset="other")
    shown = (turned, zoomed, turned, other)
    found = told_apart([Exhibition(each, (made_up.model(each, "mine"),)) for each in shown])
    assert [each.title for each in found] == [
        f"made-up, test, {turned.space}",
        "made-up, test, zoom(0.8..1.25)",
        f"made-up, test, {turned.space} (2)",
        "other",
    ]
    titles = [drawing.title for drawing in all_drawings([], found)]
    assert len({*titles}) == len(titles) == 1 + 3 * len(shown)
    assert [each["title"] for each in payload(found, [], ())["exhibitions"]] == [
        each.title for each in found
    ]


def test_two_folders_of_one_data_set_have_figures_of_their_own(tmp_path):
    shown = made_up.shown()
    for name in ("one", "two"):
        write_saved(tmp_path / name, shown, made_up.model(shown, name))
    saved = [read_saved(tmp_path / name) for name in ("one", "two")]
    names = [drawing.name for drawing in all_drawings([], saved)]
    assert names == [
        *("example-made-up", "example-made-up-2", "orbits"),
        *("along-angle-made-up", "along-angle-made-up-2"),
        *("curves-made-up", "curves-made-up-2"),
    ]
    append(tmp_path / "records.jsonl", made_up.RECORDS[0])
    chosen = ["--saved", str(tmp_path / "one"), "--saved", str(tmp_path / "two")]
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out"), *chosen]) == 0
    ids = re.findall(r'id="(figure-[^"]*)"', (tmp_path / "out" / "index.html").read_text())
    assert ids == [f"figure-{name}" for name in names]
    for name in names:
        assert (tmp_path / "out" / "figures" / f"{name}.png").is_file()


@settings(max_examples=8)
@example("a$\\frac$b")
@given(st.text("$\\^_{}&<a", min_size=1, max_size=20))
def test_a_name_with_the_signs_of_formulas_is_drawn_as_it_is(name):
    drawing = draw_penalty_weights(
        [replace(each, dataset=name) for each in made_up.RECORDS], "Wo-k"
    )
    words = ["".join(each.itertext()) for each in ET.fromstring(drawing.svg).iter()]
    assert name in [word.strip() for word in words]
