"""Which runs fill which cell: every number of the paper has one place and one recipe."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import upright
from made_up_records import made_up_record, paper_recipe
from rigid_spaces import rigid
from upright.attacks import parse_attack
from upright.models import build_network
from upright.objective import Objective, parse_objective
from upright.paper import INVARIANCE, paper_method, reported, wanted, with_reported
from upright.paper.cells import chosen_weight, recipe_of
from upright.paper.missing import missing_tasks
from upright.paper.needs import figure_recipes, table_needs
from upright.paper.tables import fill_tables, select
from upright.penalties import KL
from upright.report.comparable import comparable
from upright.train.any_plan import plan_from_json

NAMES = {"SVHN": "svhn", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
NETWORKS = ("GRN", "ETN", "STN")
GRID = {"nat": 0.9, "grid-775": 0.7}

with (Path(upright.__file__).parent / "paper" / "invariance.csv").open(newline="") as _file:
    PRINTED = list(csv.DictReader(_file))


def filled(records, table="regspat", dataset="cifar10", method="KL(rob,Wo-10)"):
    """The cells of one column, by metric."""
    (found,) = fill_tables(
        INVARIANCE,
        select(INVARIANCE, tables=[table], datasets=[dataset], methods=[method]),
        records,
    )
    return {row.metric: row.cells[0] for row in found.rows}


def test_every_number_of_the_paper_has_exactly_one_cell():
    placed = Counter(
        (table.name, row.dataset, column.name, row.metric, cell.reported.mean)
        for table in fill_tables(INVARIANCE, select(INVARIANCE), [])
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell is not None
    )
    wanted_numbers = Counter(
        (*(line[name] for name in ("table", "dataset", "method", "metric")), float(line["mean"]))
        for line in PRINTED
    )
    assert len(PRINTED) == 273
    assert Counter({(*key[:4], round(100 * key[4], 2)): n for key, n in placed.items()}) == (
        wanted_numbers
    )
    assert set(placed.values()) == {1}


def test_methods_and_tables_stand_in_the_paper_s_order():
    assert list(INVARIANCE.table_names) == list(dict.fromkeys(line["table"] for line in PRINTED))
    for layout in INVARIANCE.layouts:
        first = next(line for line in PRINTED if line["table"] == layout.name)
        order = list(
            dict.fromkeys(
                line["method"]
                for line in PRINTED
                if (line["table"], line["dataset"]) == (layout.name, first["dataset"])
            )
        )
        assert [method for method in order if method in layout.methods] == list(layout.methods)


def test_every_cell_s_recipe_is_the_paper_s():
    for line in PRINTED:
        dataset, method = NAMES[line["dataset"]], line["method"]
        recipes = wanted(dataset, method)
        if method.startswith("STN+"):
            continue  # of two networks, see test_two_stage.py
        objective = method
        if method.startswith(NETWORKS):
            objective = "std*" if method.endswith("*") else "std"
        parsed = Objective.parse(objective)
        assert [each.batch for each in recipes] == ([64, 128] if parsed.penalty is None else [64])
        for recipe in recipes:
            # The objective of a single draw may have another name, which a test below holds, and
            # another λ than the default may be chosen, see test_chosen_weight.py.
            weight = chosen_weight(INVARIANCE, dataset, method)
            name = str(Objective.parse(objective, weight=weight))
            name = str(recipe.objective) if parsed.single_try else name
            changes = {"model": recipe.model, "batch": recipe.batch}
            assert recipe == paper_recipe(dataset, name, **changes)
            assert recipe.steps == (120_000 if dataset == "cifar100" else 80_000)
            assert (recipe.model == "resnet32") == (not method.startswith(NETWORKS))


def test_metrics_are_attacks_by_their_names_in_records():
    for metric in {line["metric"] for line in PRINTED} - {"nat"}:
        assert str(parse_attack(metric)) == metric.lower()


@pytest.mark.parametrize(
    ("method", "run"),
    [
        ("KL(nat,Wo-1)", "KL(nat, rnd)"),
        ("ALP(rob,Wo-1)", "L2(rob, rnd)"),
        ("ALP(rob,rnd)", "L2(rob, rnd)"),
        ("KL-C(nat, rnd)", "KL(nat, rnd)"),
        ("AT(rob, Wo-1)", "std*"),
        ("ALP(rob, Wo-10)", "ALP(rob, Wo-10)"),
        ("KL-C(mix, S-PGD)", "KL-C(mix, S-PGD)"),
        ("ALP(rob, rnd; λ=2)", "L2(rob, rnd; λ=2)"),
        ("KL-C(rob, rnd×4)", "KL(rob, rnd×4)"),
        ("KL(rob, rnd; search=cross-entropy)", "KL(rob, rnd)"),
        ("LocNet(black)", "LocNet(black)"),
    ],
)
def test_one_random_draw_is_one_run_whatever_it_was_meant_to_maximise(method, run):
    assert str(parse_objective(method).canonical()) == run


def test_one_run_fills_the_cells_of_all_names_of_its_method():
    record = made_up_record(paper_recipe("cifar10", "L2(rob, rnd)"), GRID)
    for table, method in (
        ("comparereg", "L2(rob,rnd)"),
        ("compareadv4", "ALP(rob,rnd)"),
        ("wok_diffk", "ALP(rob,Wo-1)"),
    ):
        assert filled([record], table, method=method)["grid-775"].measured.mean == 0.7
    other = made_up_record(paper_recipe("cifar10", "ALP(rob, rnd)"), GRID)
    assert filled([other], "comparereg", method="L2(rob,rnd)")["nat"].measured.mean == 0.9


@pytest.mark.parametrize("changes", [{}, {"seed": 3}, {"precision": "bfloat16"}])
def test_seed_and_precision_may_differ(changes):
    record = made_up_record(paper_recipe("cifar10", "KL(rob, Wo-10)", **changes), GRID)
    assert filled([record])["nat"].measured.mean == 0.9


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 79_999},
        {"steps": 800},
        {"batch": 128},  # of a method with a penalty
        {"objective": "KL(rob, Wo-10; λ=4)"},
        {"objective": "KL(rob, Wo-10; direction=transformed)"},
        {"objective": "KL(nat, Wo-10)"},
        {"learning_rate": 0.05},
        {"drops": (0.5,)},
        {"weight_decay": 0.0},
        {"momentum": 0.8},
        {"flips": False},
        {"max_shift": 4},
        {"train_images": 1000},
        {"model": "resnet14"},
        {"space": rigid(3, 20)},
        {"data": "svhn"},
    ],
)
def test_another_recipe_fills_no_cell(changes):
    fields = {"objective": "KL(rob, Wo-10)", **changes}
    recipe = paper_recipe("cifar10", fields.pop("objective"), **fields)
    record = made_up_record(recipe, GRID, dataset="cifar10")
    assert filled([record])["nat"].measured is None


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluation": {"split": "train"}},
        {"evaluation": {"fill": "border"}},
        {"evaluation": {"canvas": 4}},
        {"evaluation": {"interpolation": "nearest"}},
        {"evaluation": {"space": {"max_dx": 3, "max_dy": 3, "max_angle": 20, "unit": "px"}}},
        {"data_digest": {"test_images": "of some of them"}},
        {"data_digest": {}},
        {"recipe": {"of": "a later version"}},
    ],
)
def test_another_evaluation_fills_no_cell(changes):
    record = made_up_record(paper_recipe("cifar10", "KL(rob, Wo-10)"), GRID, **changes)
    assert filled([record])["nat"].measured is None


@pytest.mark.parametrize("variant", ["official, in another order", "by MD5"])
def test_a_whole_set_in_another_order_fills_the_cells(variant):
    recipe, other = paper_recipe("cifar10", "KL(rob, Wo-10)"), {"test_images": "in another order"}
    record = made_up_record(recipe, GRID, data_digest=other, data_variant=variant)
    assert filled([record])["nat"].measured.mean == 0.9
    needs = [(recipe, "grid-775")]
    assert missing_tasks(INVARIANCE, needs, [record], seeds=1) == ()
    assert missing_tasks(INVARIANCE, needs, [replace(record, data_variant=None)], seeds=1) != ()


def test_of_two_batch_sizes_the_one_with_the_higher_grid_accuracy_is_shown_for_all_metrics():
    small = made_up_record(paper_recipe("svhn", "std*"), {"nat": 0.95, "grid-775": 0.80})
    large = made_up_record(paper_recipe("svhn", "std*", batch=128), {"nat": 0.94, "grid-775": 0.82})
    cells = filled([small, large], dataset="svhn", method="std*")
    assert (cells["nat"].measured.mean, cells["grid-775"].measured.mean) == (0.94, 0.82)
    cells = filled([small], dataset="svhn", method="std*")
    assert (cells["nat"].measured.mean, cells["grid-775"].measured.mean) == (0.95, 0.80)


def test_a_seed_counts_once_by_its_newest_record():
    recipe = paper_recipe("cifar10", "KL(rob, Wo-10)")
    old, new = (
        made_up_record(recipe, {"nat": nat}, finished=f"{year}-01-01T00:00:00+00:00")
        for nat, year in ((0.1, 2000), (0.2, 2001))
    )
    for records in ([old, new], [new, old]):
        measured = filled(records)["nat"].measured
        assert (measured.mean, measured.n, measured.stderr) == (0.2, 1, None)


def test_every_network_of_the_paper_can_be_built():
    names = {
        run.model
        for recipe, _ in table_needs(INVARIANCE, select(INVARIANCE))
        for run in recipe.runs
    }
    assert len(names) == 4
    for name in names:
        build_network(name)


def test_the_paper_s_name_is_found_from_a_recipe():
    assert paper_method(paper_recipe("svhn", "ALP(mix, S-PGD)", seed=4)) == "ALP(mix,S-PGD)"
    assert paper_method(paper_recipe("svhn", "std", batch=128, precision="bfloat16")) == "std"
    assert paper_method(paper_recipe("cifar10", "std", model="gresnet44")) == "GRN"
    assert paper_method(paper_recipe("cifar10", "std", steps=100)) is None
    assert paper_method(paper_recipe("cifar100", "KL(rob, Wo-10)")) is None


@pytest.mark.parametrize(
    ("method", "baseline"),
    [
        ("std", None),
        ("std*", None),
        ("AT(mix,Wo-10)", "std*"),
        ("KL(nat,rnd)", "std*"),
        ("ALP(rob,Wo-1)", "std*"),
        ("KL(nat,Wo-10)", "AT(rob,Wo-10)"),
        ("ALP(mix,Wo-20)", "AT(rob,Wo-10)"),
        ("KL-C(mix,S-PGD)", "AT(rob,S-PGD)"),
        ("GRN", "std"),
        ("ETN*", "std*"),
        ("STN+(c) naive", "std*"),
    ],
)
def test_error_is_removed_from_that_of_the_same_search_without_the_penalty(method, baseline):
    assert INVARIANCE.baseline(INVARIANCE.method(method)) == baseline


def test_what_is_recorded_is_not_missing():
    layouts = select(
        INVARIANCE, tables=["finer_grid"], datasets=["cifar10"], methods=["ALP(mix,Wo-10)"]
    )
    needs = table_needs(INVARIANCE, layouts)
    recipe = paper_recipe("cifar10", "ALP(mix, Wo-10)")
    (task,) = missing_tasks(INVARIANCE, needs, [], seeds=1)
    assert (task.plan, task.attacks) == (recipe, ("grid-775", "grid-7500"))
    coarse = made_up_record(replace(recipe, precision="bfloat16"), GRID)
    (task,) = missing_tasks(INVARIANCE, needs, [coarse], seeds=1)
    assert task.attacks == ("grid-7500",)
    fine = made_up_record(recipe, {"nat": 0.9, "grid-7500": 0.6})
    assert missing_tasks(INVARIANCE, needs, [coarse, fine], seeds=1) == ()
    (task,) = missing_tasks(INVARIANCE, needs, [coarse, fine], seeds=2, precision="bfloat16")
    assert task.plan == replace(recipe, seed=1, precision="bfloat16")


def test_a_record_on_other_data_or_of_another_evaluation_leaves_a_metric_missing():
    recipe = paper_recipe("cifar10", "std")
    needs = [(recipe, "nat"), (recipe, "grid-775")]
    assert missing_tasks(INVARIANCE, needs, [made_up_record(recipe, GRID)], seeds=1) == ()
    svhn = made_up_record(replace(recipe, data="svhn"), GRID).data_digest
    for changes in (
        {"dataset": "svhn", "data_digest": svhn},
        {"data_digest": {}},
        {"data_digest": {"test_images": "of some of them"}, "evaluation": {"limit": 10}},
        {"evaluation": {"fill": "border"}},
    ):
        (task,) = missing_tasks(
            INVARIANCE, needs, [made_up_record(recipe, GRID, **changes)], seeds=1
        )
        assert task.attacks == ("grid-775",)


def test_a_metric_that_tables_and_figures_need_is_measured_once():
    recipe = paper_recipe("cifar10", "std")
    needs = [(recipe, "grid-775"), (recipe, "nat"), (recipe, "grid-775"), (recipe, "S-PGD")]
    (task,) = missing_tasks(INVARIANCE, needs, [], seeds=1)
    assert task.attacks == ("grid-775", "s-pgd")


def test_tables_share_their_runs_and_every_method_s_first_seed_comes_first():
    tasks = missing_tasks(INVARIANCE, table_needs(INVARIANCE, select(INVARIANCE)), [], seeds=3)
    runs = [task.plan for task in tasks]
    assert len(set(runs)) == len(runs)
    assert [run.main.seed for run in runs] == sorted(run.main.seed for run in runs)
    (both,) = [task for task in tasks if task.plan == paper_recipe("svhn", "ALP(mix, S-PGD)")]
    assert both.attacks == ("grid-775", "s-pgd")  # of compareadv3 and fo_supp


def test_batch_sizes_can_be_left_out():
    layouts = select(INVARIANCE, tables=["compareadv1"], datasets=["cifar10"])
    assert {recipe.main.batch for recipe, _ in table_needs(INVARIANCE, layouts)} == {64, 128}
    assert {recipe.main.batch for recipe, _ in table_needs(INVARIANCE, layouts, batches=(64,))} == {
        64
    }


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"tables": ["regspatial"]}, "no table 'regspatial'; choose from regspat, comparereg"),
        ({"datasets": ["mnist"]}, "no data set 'mnist'; choose from svhn, cifar10, cifar100"),
        ({"methods": ["KL(rob, Wo-9)"]}, r"no method 'KL\(rob,Wo-9\)'"),
        (
            {"tables": ["wok_diffk"], "datasets": ["svhn"]},
            "no numbers of wok_diffk on svhn; it has",
        ),
    ],
)
def test_what_the_paper_does_not_have_is_named(choice, message):
    with pytest.raises(ValueError, match=message):
        select(INVARIANCE, **choice)


def test_methods_are_found_with_spaces_and_without():
    assert select(INVARIANCE, methods=["KL(rob, Wo-10)"]) == select(
        INVARIANCE, methods=["KL(rob,Wo-10)"]
    )


def test_the_curves_vary_the_weight_by_factors_of_two():
    runs = figure_recipes(INVARIANCE, INVARIANCE.figure("lambda-wo"), datasets=["cifar10"])
    weights = {
        str(run.objective): run.objective.weight
        for run in runs
        if (type(run.objective.penalty), run.objective.batch) == (KL, "rob")
    }
    assert sorted(weights.values()) == [1, 2, 4, 8, 16, 32]
    assert weights["KL(rob, Wo-10)"] == 8
    assert len(runs) == 4 * 6
    assert len(figure_recipes(INVARIANCE, INVARIANCE.figure("lambda-wo"))) == 2 * len(runs)


def test_figures_need_runs_of_the_paper_s_recipe_alone():
    for each in INVARIANCE.figures:
        for run in figure_recipes(INVARIANCE, each):
            assert run == paper_recipe(run.data, run.objective)
        records = [made_up_record(run, GRID) for run in figure_recipes(INVARIANCE, each)]
        assert len(comparable(records)) == len(records)
    (run,) = figure_recipes(INVARIANCE, INVARIANCE.figure("runtime"), methods=["AT(rob,Wo-20)"])
    assert run == paper_recipe("cifar10", "AT(rob, Wo-20)")
    with pytest.raises(ValueError, match="the figure runtime has no such runs; it has std, "):
        figure_recipes(INVARIANCE, INVARIANCE.figure("runtime"), datasets=["svhn"])
    with pytest.raises(ValueError, match="no figure 'speed'; choose from runtime, lambda-rnd"):
        INVARIANCE.figure("speed")


def test_a_pair_says_whether_it_is_an_oracle():
    (pair, _) = wanted("cifar10", "STN+(c) trick")
    assert plan_from_json(pair.as_json()) == pair
    values = pair.as_json()
    del values["oracle"]
    with pytest.raises(ValueError, match="not a pair of recipes"):
        plan_from_json(values)


def test_the_paper_s_number_stands_beside_rounded_weights_which_fill_no_cell():
    recipe = wanted("cifar10", "std")[0]
    exact = made_up_record(recipe, {"nat": 0.9, "wo-3": 0.1}, data_variant="official")
    rounded = replace(exact, evaluation={**exact.evaluation, "weights": "bfloat16"})
    for record in (exact, rounded):
        assert with_reported(record).reported == {"nat": reported("cifar10", "std", "nat")}
        unknown = replace(record, data_variant=None)  # perhaps not all images
        assert with_reported(unknown).reported == {}
    assert recipe_of(INVARIANCE, exact) is not None
    assert recipe_of(INVARIANCE, rounded) is None
