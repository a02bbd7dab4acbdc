"""Which missing runs come first: those that fill most empty cells in the least time."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
import torch

from made_up_records import made_up_record, paper_recipe
from upright.paper import INVARIANCE
from upright.paper.cost import Times
from upright.paper.missing import missing_tasks
from upright.paper.needs import table_needs
from upright.paper.order import most_cells_first
from upright.paper.tables import fill_tables, select
from upright.records import Record
from upright.workers import Task
from upright.workers.engine import _groups

CPU = torch.device("cpu")
GRID = {"nat": 0.9, "grid-775": 0.7}
SLOW = made_up_record(paper_recipe("cifar10", "std*"), GRID, train_seconds=4000.0)


def ordered(records: list[Record], runs: Path, *, seeds: int = 1, **asked: list[str]) -> list[Task]:
    layouts = select(INVARIANCE, **asked)
    tasks = missing_tasks(INVARIANCE, table_needs(INVARIANCE, layouts), records, seeds=seeds)
    found = most_cells_first(
        INVARIANCE, layouts, tasks, records, times=Times.of(INVARIANCE, records, CPU), runs=runs
    )
    assert sorted(map(str, found)) == sorted(map(str, tasks))
    return list(found)


def empty_cells(records: list[Record], **asked: list[str]) -> int:
    """Counted in the tables themselves."""
    tables = fill_tables(INVARIANCE, select(INVARIANCE, **asked), records)
    cells = [cell for table in tables for row in table.rows for cell in row.cells]
    return sum(cell is not None and cell.measured is None for cell in cells)


def recorded(task: Task) -> Record:
    measured = {"nat": 0.9, **dict.fromkeys(task.attacks, 0.5)}
    fill = {"fill": task.plan.locnet_fill} if task.plan.locnet_fill else {}
    return made_up_record(task.plan, measured, evaluation=fill)


def test_no_run_that_fills_an_empty_cell_comes_after_one_that_fills_none(tmp_path: Path) -> None:
    """Over all of the paper, with five seeds: the first runs fill every cell, one for each."""
    records, fills = [SLOW], []
    empty = empty_cells(records)
    for task in ordered(records, tmp_path, seeds=5):
        if not empty:
            break
        records.append(recorded(task))
        left = empty_cells(records)
        fills.append(empty - left)
        empty = left
    assert empty == 0
    assert min(fills) > 0


def test_of_runs_that_fill_as_many_cells_the_fastest_comes_first(tmp_path: Path) -> None:
    methods = ["KL(rob,Wo-10)", "L2(rob,Wo-10)"]
    asked = {"tables": ["regspat"], "datasets": ["cifar10"], "methods": methods}
    for fast, slow in (methods, methods[::-1]):
        times = {fast: 10.0, slow: 100.0}
        # Told by another λ, which fills no cell.
        told = [
            made_up_record(
                paper_recipe("cifar10", f"{method[:-1]}; λ=3)"), GRID, train_seconds=seconds
            )
            for method, seconds in times.items()
        ]
        found = ordered(told, tmp_path, **asked)
        assert [task.plan.method.replace(" ", "") for task in found] == [fast, slow]


def test_one_that_fills_more_cells_comes_before_one_that_takes_as_long(tmp_path: Path) -> None:
    """Of one method the natural accuracy is there already, of the other nothing."""
    methods = ["KL(rob,Wo-10)", "L2(rob,Wo-10)"]
    asked = {"tables": ["regspat"], "datasets": ["cifar10"], "methods": methods}
    for less, more in (methods, methods[::-1]):
        begun = made_up_record(paper_recipe("cifar10", less), {"nat": 0.9})
        told = made_up_record(paper_recipe("cifar10", f"{more[:-1]}; λ=3)"), GRID)
        found = ordered([begun, told], tmp_path, **asked)
        assert [task.plan.method.replace(" ", "") for task in found] == [more, less]


def test_of_two_sizes_of_batch_the_one_that_is_shown_fills_its_empty_cells(tmp_path: Path) -> None:
    """grid-7500 is of the size with the higher grid-775, however fast the other would be."""
    asked = {"tables": ["finer_grid"], "datasets": ["cifar10"], "methods": ["AT(rob,Wo-10)"]}
    for better in (64, 128):
        records = [
            made_up_record(
                paper_recipe("cifar10", "AT(rob, Wo-10)", batch=batch),
                {"nat": 0.9, "grid-775": 0.6 if batch == better else 0.5},
                train_seconds=900.0 if batch == better else 100.0,
            )
            for batch in (64, 128)
        ]
        first, second = ordered(records, tmp_path, **asked)
        assert (first.plan.main.batch, second.plan.main.batch) == (better, 192 - better)
        assert empty_cells([*records, recorded(first)], **asked) == 0


def test_one_whose_run_is_trained_comes_first(tmp_path: Path) -> None:
    methods = ["KL(rob,Wo-10)", "L2(rob,Wo-10)"]
    asked = {"tables": ["regspat"], "datasets": ["cifar10"], "methods": methods}
    tasks = ordered([SLOW], tmp_path, **asked)
    assert len(tasks) == 2
    for task in tasks:
        with mock.patch("upright.paper.todo.is_trained", lambda run, _, its=task: run == its.plan):
            assert ordered([SLOW], tmp_path, **asked)[0] == task


def test_numbers_that_the_paper_prints_twice_count_twice(tmp_path: Path) -> None:
    """std* of CIFAR-10 stands in three tables beside three that stand in one or two."""
    told = made_up_record(paper_recipe("cifar10", "std*", seed=1, steps=10), GRID)
    first, *_ = ordered([told], tmp_path, tables=["regspat", "comparereg", "compareadv1"])
    assert first.plan.method == "std*"


def test_a_metric_that_is_spelled_in_capitals_fills_its_cell(tmp_path: Path) -> None:
    asked = {"tables": ["fo_supp"], "datasets": ["cifar10"], "methods": ["AT(mix,S-PGD)"]}
    records = [
        made_up_record(paper_recipe("cifar10", "AT(mix, S-PGD)", batch=128), GRID),
        made_up_record(paper_recipe("cifar10", "AT(mix, S-PGD)", batch=64), {"nat": 0.9}),
    ]
    first, *_ = ordered(records, tmp_path, **asked)
    assert (first.plan.main.batch, first.attacks) == (128, ("s-pgd",))


def test_of_networks_that_never_were_timed_come_after_those_that_were(tmp_path: Path) -> None:
    asked = {"tables": ["regspat"], "datasets": ["svhn"]}
    found = ordered([SLOW], tmp_path, **asked)
    models = [task.plan.main.model for task in found if task.plan.main.batch == 64]
    assert models.index("resnet32") < models.index("gresnet44")
    assert set(models[: models.count("resnet32")]) == {"resnet32"}


def test_what_another_has_trained_already_takes_no_time(tmp_path: Path) -> None:
    """Of pairs with a LocNet and a classifier in common, the next one is only evaluated."""
    asked = {"tables": ["two-stage-eval"], "datasets": ["cifar10"]}
    pairs = ordered([SLOW], tmp_path, **asked)
    cells = [task.plan for task in pairs if task.plan.main.batch == 64]
    assert len(cells) == 4
    # Each LocNet's two pairs follow each other.
    fills = [plan.locnet_fill for plan in cells]
    assert fills[0] == fills[1] != fills[2] == fills[3]


def test_where_no_cell_is_empty_the_order_stays(tmp_path: Path) -> None:
    asked = {"tables": ["compareadv1"], "datasets": ["cifar10"], "methods": ["std*", "std"]}
    records = [recorded(task) for task in ordered([], tmp_path, **asked)]
    layouts = select(INVARIANCE, **asked)
    tasks = missing_tasks(INVARIANCE, table_needs(INVARIANCE, layouts), records, seeds=3)
    assert len(tasks) == 2 * 2 * 2
    found = most_cells_first(
        INVARIANCE, layouts, tasks, records, times=Times((), None), runs=tmp_path
    )
    assert found == tasks


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, ["a0", "b0", "a1", "b1", "a2"]),
        (2, ["a0 a1", "b0 b1", "a2"]),
        (9, ["a0 a1 a2", "b0 b1"]),
    ],
)
def test_the_first_run_is_in_the_first_group_whatever_its_data(
    size: int, expected: list[str]
) -> None:
    data = {"a": "cifar10", "b": "svhn"}
    named = {
        paper_recipe(data[name[0]], "std", seed=int(name[1])): name
        for name in ("a0", "b0", "a1", "b1", "a2")
    }
    groups = _groups([Task(plan=plan) for plan in named], size)
    assert [" ".join(named[run] for run in group) for group in groups] == expected
