"""The choice of λ: by which rule, from which records, and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
import torch

from made_up_records import made_up_record, paper_recipe
from upright.objective import Objective
from upright.paper import INVARIANCE, with_reported
from upright.paper.cost import Times
from upright.paper.leaderboard import leaderboards
from upright.paper.missing import missing_tasks, undone
from upright.paper.needs import figure_needs, penalised, weight_needs
from upright.paper.tables import fill_tables, select
from upright.paper.todo import todo_of
from upright.paper.weights import called_for, chosen, weight_choices
from upright.report.comparable import comparable
from upright.report.data import LambdaPoint
from upright.report.model import Estimate, Source
from upright.report.weights import weights_to_markdown

KL = "KL(rob, Wo-10; λ={})"
USUAL = 8.0


def point(weight, grid, seeds=1):
    sources = tuple(
        Source(recipe_hash="made up", seed=seed, commit=None, hardware="none", finished="")
        for seed in range(seeds)
    )
    made = {"stderr": None, "images": 10_000, "sources": sources}
    return LambdaPoint(
        weight=weight, natural=Estimate(mean=0.9, **made), grid=Estimate(mean=grid, **made)
    )


def of_test(weight, grid, *, seed=0, dataset="cifar10", **changes):
    recipe = paper_recipe(dataset, KL.format(weight), seed=seed)
    return made_up_record(recipe, {"nat": 0.9, "grid-775": grid}, **changes)


def held_out(weight, grid, *, seed=0, dataset="cifar10", images=5000, **changes):
    recipe = paper_recipe(dataset, KL.format(weight), seed=seed, held_out=True)
    asked = {"evaluation": {"split": "held-out"}, "data_digest": {"held-out_images": "any"}}
    return made_up_record(recipe, {"nat": 0.9, "grid-775": grid}, images=images, **asked, **changes)


@pytest.mark.parametrize(
    ("points", "best"),
    [
        ([], None),
        ([point(4.0, 0.9)], None),  # nothing to be above
        ([point(8.0, 0.7)], 8.0),
        ([point(4.0, 0.71), point(8.0, 0.70)], 4.0),
        ([point(4.0, 0.69), point(8.0, 0.70)], 8.0),
        ([point(4.0, 0.70), point(8.0, 0.70), point(16.0, 0.70)], 8.0),
        ([point(4.0, 0.71), point(8.0, 0.70), point(2.0, 0.72)], 2.0),
        ([point(4.0, 0.75, seeds=1), point(8.0, 0.70, seeds=3)], 8.0),
        ([point(4.0, 0.75, seeds=3), point(8.0, 0.70, seeds=3)], 4.0),
        ([point(4.0, 0.75, seeds=5), point(8.0, 0.70, seeds=3)], 4.0),
        ([point(4.0, 0.65, seeds=5), point(8.0, 0.70, seeds=1)], 8.0),
        ([point(2.0, 0.76), point(4.0, 0.75, seeds=3), point(8.0, 0.70)], 4.0),
    ],
)
def test_the_usual_weight_is_replaced_by_a_better_one_of_as_many_seeds(points, best):
    for some in permutations(points):
        assert chosen(some, USUAL) == best


def test_the_weights_of_a_paper_are_those_that_differ_from_the_default():
    records = [of_test(8, 0.7), of_test(4, 0.8), of_test(8, 0.7, dataset="svhn")]
    assert called_for(INVARIANCE, records) == {("cifar10", "KL(rob, Wo-10)"): 4.0}
    more = [of_test(8, 0.7, seed=seed) for seed in (1, 2)]
    assert called_for(INVARIANCE, records + more) == {}
    enough = [of_test(4, 0.8, seed=seed) for seed in (1, 2)]
    assert called_for(INVARIANCE, records + more + enough) == called_for(INVARIANCE, records)


def test_each_way_to_choose_has_its_own_records():
    records = [of_test(4, 0.80), of_test(8, 0.75), of_test(16, 0.70)]
    apart = [held_out(4, 0.70), held_out(8, 0.71), held_out(16, 0.72)]
    (choice,) = weight_choices(INVARIANCE, records, apart)
    assert (choice.dataset, choice.method) == ("CIFAR-10", "KL(rob,Wo-10)")
    assert (choice.by_test, choice.by_held_out) == (4.0, 16.0)
    assert [each.grid.mean for each in choice.tested] == [0.80, 0.75, 0.70]
    assert [each.grid.mean for each in choice.held_out] == [0.70, 0.71, 0.72]
    assert (choice.natural.mean, choice.grid.mean) == (0.9041, 0.7747)
    # Whichever folder they lie in, neither is taken for the other.
    assert weight_choices(INVARIANCE, records + apart, apart + records) == (choice,)
    assert weight_choices(INVARIANCE, apart, records) == ()


def test_a_run_that_has_seen_the_images_does_not_choose_by_them():
    apart = held_out(4, 0.7)
    seen = replace(apart, recipe=paper_recipe("cifar10", KL.format(4)).as_json())
    for other in (seen, held_out(4, 0.7, images=500)):
        assert weight_choices(INVARIANCE, [], [other]) == ()
    few = held_out(4, 0.7, images=500)
    limited = replace(few, evaluation=few.evaluation | {"limit": 500})
    assert weight_choices(INVARIANCE, [], [limited]) == ()


def test_records_of_held_out_images_are_in_no_table_figure_or_leaderboard():
    apart = [held_out(8, 0.99), held_out(4, 0.99, seed=1)]
    tables = fill_tables(INVARIANCE, select(INVARIANCE), apart)
    assert all(cell.measured is None for table in tables for cell in table.cells)
    assert leaderboards(INVARIANCE, apart) == ()
    for paper in (INVARIANCE, INVARIANCE.on_held_out):
        assert with_reported(replace(apart[0], data_variant="official"), paper=paper).reported == {}
    told = with_reported(of_test(8, 0.7, data_variant="official"))
    assert told.reported
    assert comparable([told, *apart]) == (told,)


def test_every_method_with_a_penalty_can_be_reached():
    reached = penalised(INVARIANCE, select(INVARIANCE))
    of_100 = [method for dataset, method in reached if dataset == "cifar100"]
    assert sorted(of_100) == [
        "ALP(mix,S-PGD)",
        "ALP(mix,Wo-10)",
        "ALP(mix,Wo-20)",
        "ALP(rob,S-PGD)",
    ]
    objectives = {(name, INVARIANCE.method(method).objective) for name, method in reached}
    canonical = {(name, objective.canonical()) for name, objective in objectives}
    assert len(canonical) == len(reached)  # one draw is one method
    for figure in ("lambda-wo", "lambda-rnd"):
        needs = figure_needs(INVARIANCE, [figure])
        assert {(run.data, run.objective.with_usual_weight()) for run, _ in needs} <= canonical


def test_a_grid_of_weights_is_around_the_default_of_each_method():
    layouts = select(
        INVARIANCE, datasets=["cifar10"], methods=["KL(rob,Wo-10)", "std", "L2(nat,rnd)"]
    )
    needs = weight_needs(INVARIANCE, layouts, (0.5, 1.0))
    assert [metric for _, metric in needs] == ["grid-775"] * 4
    runs = [paper_recipe("cifar10", name) for name in ("KL(rob, Wo-10; λ=4)", "KL(rob, Wo-10)")]
    runs += [paper_recipe("cifar10", name) for name in ("L2(nat, rnd; λ=0.5)", "L2(nat, rnd)")]
    assert {run for run, _ in needs} == set(runs)
    apart = weight_needs(INVARIANCE.on_held_out, layouts, (0.5, 1.0))
    assert [run for run, _ in apart] == [replace(run, held_out=True) for run, _ in needs]


def test_a_figure_can_be_made_with_some_weights():
    few = figure_needs(INVARIANCE, ["lambda-wo"], datasets=["svhn"], factors=(0.5, 1.0))
    every = figure_needs(INVARIANCE, ["lambda-wo"], datasets=["svhn"])
    assert len(few) == 8
    assert set(few) < set(every)
    runtime = figure_needs(INVARIANCE, ["runtime"], factors=(2.0,))
    assert runtime
    assert all(run.objective.penalty is not None for run, _ in runtime)


def test_what_was_measured_on_held_out_images_is_not_missing():
    paper = INVARIANCE.on_held_out
    needs = figure_needs(paper, ["lambda-wo"], datasets=["cifar10"], methods=["KL(rob, Wo-10)"])
    tasks = missing_tasks(paper, needs, [of_test(8, 0.7)], seeds=1)
    assert len(tasks) == len(needs) == 6
    assert {task.question.split for task in tasks} == {"held-out"}
    assert all("a tenth held out" in str(task) for task in tasks)
    left = undone(paper, tasks, [held_out(8, 0.7), held_out(4, 0.7)])
    assert [str(task.plan.objective) for task in left] == [
        str(Objective.parse(KL.format(weight))) for weight in (1, 2, 16, 32)
    ]


def test_how_long_it_takes_is_told_from_the_test_set_s_records(tmp_path):
    paper = INVARIANCE.on_held_out
    needs = figure_needs(paper, ["lambda-wo"], datasets=["cifar10"], methods=["KL(rob, Wo-10)"])
    tasks = missing_tasks(paper, needs, [], seeds=1)
    todo = todo_of(
        tasks, Times.of(INVARIANCE, [of_test(8, 0.7)], torch.device("cpu")), runs=tmp_path
    )
    assert {(cost.train, cost.evaluate) for cost in todo.costs} == {
        (400.0, 10.0)
    }  # half the images


def shown(records, apart=()):
    """The cells of the table's rows, without its headings."""
    text = weights_to_markdown(weight_choices(INVARIANCE, records, apart))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_a_row_has_what_each_weight_gave_and_by_what_it_was_chosen():
    records = [of_test(4, 0.78), of_test(8, 0.77)]
    apart = [held_out(4, 0.70), held_out(8, 0.72), held_out(16, 0.71)]
    assert shown(records, apart) == [
        ["`KL(rob, Wo-10)`", "4", "90.00 / 78.00", "1", "90.00 / 70.00", "1", "test set",
         "90.41 / 77.47"],
        ["", "8", "90.00 / 77.00", "1", "90.00 / 72.00", "1", "held-out images", ""],
        ["", "16", "", "", "90.00 / 71.00", "1", "", ""],
    ]  # fmt: skip


def test_where_one_weight_was_tried_nothing_was_chosen():
    ((*_, by, _),) = shown([of_test(8, 0.77)], [held_out(8, 0.77)])
    assert by == "no other tried"
    first, second = shown([of_test(8, 0.77), of_test(4, 0.76)], [held_out(8, 0.77)])
    assert (first[6], second[6]) == ("", "test set")


def test_a_higher_mean_of_too_few_seeds_is_told():
    records = [of_test(4, 0.78), *(of_test(8, 0.77, seed=seed) for seed in range(3))]
    assert [row[6] for row in shown(records)] == ["(test set: too few seeds)", "test set"]


def test_both_ways_may_choose_the_same():
    records, apart = [of_test(4, 0.78), of_test(8, 0.77)], [held_out(4, 0.78), held_out(8, 0.77)]
    assert [row[6] for row in shown(records, apart)] == ["test set, held-out images", ""]
