"""How long missing runs take: measured, or extrapolated and called so; and data for figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made_up_records import made_up_record, paper_recipe
from upright.objective import Objective, parse_objective
from upright.paper import INVARIANCE
from upright.paper.cells import with_run
from upright.paper.cost import cost_of, passes_of_a_step, timed, usual_hardware
from upright.records import Origin
from upright.report.data import lambda_curve, runtime_points
from upright.train import Mean
from upright.tta import Averaging
from upright.workers import Task

GPU = "made-up GPU"
GRID = {"nat": 0.9, "grid-775": 0.7}
STAR = made_up_record(paper_recipe("cifar10", "std*"), GRID, train_seconds=160.0)
WORST = made_up_record(paper_recipe("cifar10", "AT(rob, Wo-10)"), GRID, train_seconds=240.0)


def task(objective, **changes):
    attacks = changes.pop("attacks", ("grid-775",))
    return Task(plan=paper_recipe("cifar10", objective, **changes), attacks=attacks)


def test_the_same_method_on_the_same_hardware_is_measured():
    disturbed, again = (
        replace(STAR, train_seconds=seconds, seed=seed) for seed, seconds in ((1, 1e6), (2, 160.0))
    )
    for seed in (0, 4):
        cost = cost_of(task("std*", seed=seed), [STAR, disturbed, again], GPU)
        assert (cost.train, cost.evaluate, cost.basis) == (160.0, 20.0, "measured")
        assert cost.seconds == 180.0
    assert cost_of(task("std*"), [STAR], GPU, train=()).seconds == 20.0


def test_a_mean_tells_no_network_s_time():
    mean = Mean(members=(paper_recipe("cifar10", "std*"),), over=Averaging.parse("mirror"))
    assert timed(INVARIANCE, [made_up_record(mean, GRID), STAR]) == (STAR,)


@pytest.mark.parametrize("beside", [4, None])
def test_a_time_that_runs_may_have_shared_is_not_called_measured(beside):
    """A slow method beside fast ones is recorded with less than it takes, a fast one with more."""
    subsidised = replace(WORST, train_seconds=120.0, beside=beside)
    cost = cost_of(task("AT(rob, Wo-10)"), [STAR, subsidised], GPU)
    assert (cost.train, cost.basis) == (120.0, "shared")
    cost = cost_of(task("AT(rob, Wo-10)"), [STAR, subsidised, WORST], GPU)
    assert (cost.train, cost.basis) == (240.0, "measured")


def test_another_weight_of_the_penalty_takes_the_same_time():
    usual = made_up_record(paper_recipe("cifar10", "KL(rob, Wo-10)"), GRID, train_seconds=100.0)
    cost = cost_of(task("KL(rob, Wo-10; λ=4)"), [STAR, usual], GPU)
    assert (cost.train, cost.basis) == (100.0, "measured")


def test_other_methods_are_extrapolated_from_runs_that_trained_alone_where_there_are_such():
    shared = replace(WORST, train_seconds=160.0, beside=2)
    assert cost_of(task("KL(nat, rnd)"), [STAR, shared], GPU).train == pytest.approx(2 * 160.0)
    both = [replace(STAR, beside=2), shared]
    assert cost_of(task("KL(nat, rnd)"), both, GPU).train == pytest.approx(160.0)


def test_nothing_is_guessed_from_another_precision():
    half = task("std*", precision="bfloat16")
    assert (cost_of(half, [STAR], GPU).train, cost_of(half, [STAR], GPU).basis) == (None, "unknown")
    record = made_up_record(half.plan, GRID, train_seconds=40.0, evaluate_seconds=5.0)
    cost = cost_of(half, [STAR, replace(record, evaluation={"precision": "float16"})], GPU)
    assert (cost.train, cost.evaluate, cost.basis) == (40.0, 5.0, "measured")
    compiled = {"precision": "float16", "compile": True}
    cost = cost_of(half, [STAR, replace(record, evaluation=compiled)], GPU)
    assert (cost.train, cost.basis) == (40.0, "extrapolated")
    cost = cost_of(half, [STAR, record], GPU)  # as `upright evaluate` does it: in float32
    assert (cost.train, cost.basis) == (40.0, "extrapolated")


def test_grids_and_gradients_of_a_task_are_two_evaluations():
    climb = replace(STAR, measured={"nat": 0.9, "s-pgd": 0.8}, evaluate_seconds=3.0)
    cost = cost_of(task("std*", attacks=("grid-775", "s-pgd")), [STAR, climb], GPU)
    assert (cost.evaluate, cost.basis) == (23.0, "measured")


def test_training_is_told_by_the_hardware_that_trained_and_evaluation_by_that_which_evaluated():
    gpu = Origin(commit=None, versions={}, hardware=GPU)
    moved = replace(STAR, hardware="a laptop", trained_by=(gpu,))
    assert cost_of(task("std*"), [moved], GPU).train == 160.0
    assert cost_of(task("std*"), [moved], GPU).evaluate is None
    cost = cost_of(task("std*"), [moved], "a laptop")
    assert (cost.train, cost.evaluate, cost.basis) == (None, 20.0, "unknown")
    assert usual_hardware([moved], "a laptop") == GPU
    halfway = replace(STAR, trained_by=(gpu, replace(gpu, hardware="another")))
    assert cost_of(task("std*"), [halfway], GPU).train is None


def test_a_shorter_run_tells_the_time_of_a_step():
    short = made_up_record(
        paper_recipe("cifar10", "std*", steps=800), GRID, train_seconds=1.6, images=100
    )
    cost = cost_of(task("std*"), [short], GPU)
    assert cost.train == pytest.approx(160.0)
    assert cost.evaluate == pytest.approx(20.0 * 100)


def test_another_method_is_extrapolated_by_the_passes_of_its_step():
    doubled = cost_of(task("std*", batch=128), [STAR], GPU)
    assert (doubled.train, doubled.basis) == (pytest.approx(320.0), "extrapolated")
    # The line through 3 passes in 2 ms and 13 in 3 ms has 6 more passes in 0.6 ms more.
    between = cost_of(task("KL(nat, rnd)"), [STAR, WORST], GPU)
    assert passes_of_a_step(Objective.parse("KL(nat, rnd)"), 64) == 64 * 6
    assert between.train == pytest.approx(80_000 * 0.0023)
    assert between.basis == "extrapolated"


def test_an_attack_that_was_not_measured_is_extrapolated_by_its_poses():
    cost = cost_of(task("std*", attacks=("grid-7500",)), [STAR], GPU)
    assert cost.evaluate == pytest.approx(20.0 * 7501 / 776)
    assert cost.basis == "extrapolated"


@pytest.mark.parametrize("changes", [{"hardware": "another"}, {"model": "resnet14"}])
def test_nothing_is_guessed_from_other_hardware_or_networks(changes):
    cost = cost_of(task("std*"), [replace(STAR, **changes)], GPU)
    assert (cost.seconds, cost.basis) == (None, "unknown")


def test_estimates_are_for_this_hardware_or_for_that_of_most_records():
    other = replace(STAR, hardware="another")
    assert usual_hardware([STAR, STAR, other], "another") == "another"
    assert usual_hardware([STAR, STAR, other], "a laptop") == GPU
    assert usual_hardware([], "a laptop") == "a laptop"


@pytest.mark.parametrize(
    ("objective", "passes"),
    [
        ("std", 3),
        ("std*", 3),
        ("AT(rob, Wo-10)", 10 + 3),
        ("AT(mix, Wo-10)", 10 + 6),
        ("ALP(rob, Wo-20)", 20 + 6),
        ("KL(rob, Wo-10)", 10 + 6),
        ("L2(rob, Wo-10)", 10 + 9),
        ("L2(rob, rnd)", 6),
        ("KL-C(mix, S-PGD)", 3 * 5 + 6),
        ("KL(rob, refine-20)", 20 + 6),
        ("L2(rob, refine-20)", 2 * 20 + 9),
    ],
)
def test_passes_of_a_step_are_those_of_the_objective(objective, passes):
    """A gradient counts three; what one pass over the originals adds to a search is left out."""
    parsed = parse_objective(objective)
    assert passes_of_a_step(parsed, 1) == passes
    assert passes_of_a_step(parsed, 64) == 64 * passes


@pytest.mark.parametrize("weight", ["x", "nan", "1e999", "-1", "0", "9" * 5000])
def test_a_weight_that_cannot_be_drawn_is_on_no_curve(weight):
    names = ["KL(rob, Wo-10)", f"KL(rob, Wo-10; λ={weight})"]
    records = [made_up_record(paper_recipe("cifar10", "std"), GRID, method=name) for name in names]
    curve = lambda_curve(records, dataset="cifar10", method=Objective.parse("KL(rob, Wo-10)"))
    assert [point.weight for point in curve] == [8]


def test_a_name_of_too_many_tries_is_a_method_by_itself():
    recipe = paper_recipe("cifar10", "std")
    method = f"AT(rob, Wo-{'9' * 5000})"
    record = made_up_record(recipe, {"nat": 0.5, "grid-775": 0.5}, method=method)
    (point,) = runtime_points([record])
    assert (point.family, point.tries) == (method, None)


def test_a_curve_has_a_point_for_each_weight_in_their_order():
    records = [
        made_up_record(
            with_run(paper_recipe(data, f"KL(rob, rnd; λ={weight})"), seed=seed),
            {"nat": 0.9, "grid-775": weight / 100 + seed / 10},
        )
        for data in ("cifar10", "svhn")
        for weight in (16, 8, 1)
        for seed in (0, 1)
    ]
    curve = lambda_curve(records, dataset="svhn", method=Objective.parse("KL(rob, rnd)"))
    assert [point.weight for point in curve] == [1, 8, 16]
    assert [point.grid.mean for point in curve] == pytest.approx([0.06, 0.13, 0.21])
    assert {point.grid.n for point in curve} == {2}
    assert lambda_curve(records, dataset="svhn", method=Objective.parse("KL(nat, rnd)")) == ()
    assert lambda_curve([STAR], dataset="cifar10", method=Objective.parse("std*")) == ()


def test_points_of_run_time_connect_what_differs_in_the_number_of_tries_only():
    ten, one = (
        made_up_record(paper_recipe("cifar10", name), GRID)
        for name in ("ALP(rob, Wo-10)", "ALP(rob, rnd)")
    )
    climbing = made_up_record(paper_recipe("cifar10", "KL-C(mix, S-PGD)"), GRID)
    again = replace(WORST, seed=1, train_seconds=480.0)
    unmeasured = made_up_record(paper_recipe("svhn", "std"), {"nat": 0.9})
    points = runtime_points([STAR, WORST, again, ten, one, climbing, unmeasured])
    assert [(point.method, point.family, point.tries) for point in points] == [
        ("std*", "AT(rob, Wo-k)", 1),
        ("AT(rob, Wo-10)", "AT(rob, Wo-k)", 10),
        ("ALP(rob, Wo-10)", "ALP(rob, Wo-k)", 10),
        ("ALP(rob, rnd)", "ALP(rob, Wo-k)", 1),
        ("KL-C(mix, S-PGD)", "KL-C(mix, S-PGD)", None),
    ]
    assert points[1].hours == pytest.approx(0.1)
    assert (points[1].grid.mean, points[1].grid.n, points[1].hardware) == (0.7, 2, GPU)
