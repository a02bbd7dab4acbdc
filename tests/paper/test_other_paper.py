"""Another paper: its tables, what is missing for them and what stands beside a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from made_up_records import EVALUATION, made_up_record
from upright import Space
from upright.evaluation import Question
from upright.measure.run import questions_of
from upright.objective import Objective
from upright.paper import (
    INVARIANCE,
    Figure,
    Layout,
    Method,
    Paper,
    all_reported,
    paper_method,
    paper_rows,
    reported,
    wanted,
    with_reported,
)
from upright.paper.cells import evaluated_as_in_the_paper
from upright.paper.cost import Times
from upright.paper.leaderboard import leaderboards
from upright.paper.missing import missing_tasks
from upright.paper.needs import figure_needs, table_needs
from upright.paper.tables import fill_tables, select
from upright.paper.todo import todo_of
from upright.train import Recipe

TURNS = Paper(
    numbers="""\
table,dataset,method,metric,mean,stderr
turns,The Glyphs,plain,nat,90.00,1.00
turns,The Glyphs,plain,grid-7,20.00,2.00
turns,The Glyphs,"AT(rob,Wo-10)",nat,85.00,
turns,The Glyphs,"AT(rob,Wo-10)",grid-7,60.00,
again,The Glyphs,"AT(rob,Wo-10)",grid-7,61.00,1.00
again,The Glyphs,plain,grid-7,2.00,1.00
""",
    datasets={"glyphs": "The Glyphs"},
    layouts=(
        Layout(
            name="turns",
            title="Turned",
            methods=("plain", "AT(rob,Wo-10)"),
            datasets=("glyphs",),
            metrics=("nat", "grid-7"),
        ),
    ),
    figures=(
        Figure(name="curve", title="λ", datasets=("glyphs",), methods=("L2(nat,rnd)",)),
        Figure(name="both", title="All", datasets=("glyphs",), methods=("plain",)),
    ),
    methods={"plain": Method(objective=Objective.parse("std"), model="convnet")},
    question=Question(space=Space.of("rotate(90)"), fill="border", top=2),
    training={"glyphs": {"steps": 30, "flips": False}},
    decisive="grid-7",
    seeds=9,
    baseline=lambda method: "plain" if method.objective.attack else None,
    misprints={("again", "The Glyphs", "plain"): "a digit is missing"},
)
ASKED = {"space": "rotate(90)", "fill": "border", "top": 2}
PLAIN = Recipe(
    objective="std", data="glyphs", model="convnet", space="rotate(90)", steps=30, flips=False
)
WORST = replace(PLAIN, objective=Objective.parse("AT(rob, Wo-10)"), model="resnet32", max_shift=0)


def record(recipe=PLAIN, nat=0.8, grid=0.3, evaluation=ASKED, **changes):
    measured = {"nat": nat, "grid-7": grid}
    return made_up_record(recipe, measured, evaluation=evaluation, **changes)


def cells(records):
    (table,) = fill_tables(TURNS, select(TURNS), records)
    return {
        (column.name, row.metric): cell
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    }


def test_its_recipes_have_its_space_and_schedule():
    assert wanted("glyphs", "plain", paper=TURNS) == (PLAIN,)
    assert wanted("glyphs", "AT(rob, Wo-10)", paper=TURNS) == (WORST,)
    assert paper_method(replace(WORST, seed=3), paper=TURNS) == "AT(rob,Wo-10)"
    assert paper_method(PLAIN) is None
    with pytest.raises(ValueError, match="the paper has no data set 'cifar10'; choose from glyphs"):
        wanted("cifar10", "plain", paper=TURNS)


def test_its_table_is_filled_from_records():
    empty = cells([])
    assert {key: cell.reported.mean for key, cell in empty.items()} == {
        ("plain", "nat"): 0.9,
        ("plain", "grid-7"): 0.2,
        ("AT(rob,Wo-10)", "nat"): 0.85,
        ("AT(rob,Wo-10)", "grid-7"): 0.6,
    }
    assert {cell.verdict for cell in empty.values()} == {"missing"}
    seeds = [record(replace(PLAIN, seed=seed), grid=0.19 + 0.01 * seed) for seed in range(3)]
    filled = cells([*seeds, record(WORST, grid=0.4)])
    assert filled["plain", "grid-7"].measured.mean == pytest.approx(0.2)
    assert filled["plain", "grid-7"].verdict == "agrees"
    assert filled["plain", "nat"].verdict == "short"
    worst = filled["AT(rob,Wo-10)", "grid-7"]
    assert worst.reduction.absolute == pytest.approx(0.2)
    assert worst.reported_reduction.absolute == pytest.approx(0.4)
    assert {cell.command for cell in filled.values()} == {""}  # no command makes its runs


def test_a_mean_without_an_error_is_taken_to_be_of_as_many_runs_as_the_paper_says():
    seeds = [record(replace(WORST, seed=seed), nat=nat) for seed, nat in ((0, 0.81), (1, 0.83))]
    difference = cells(seeds)["AT(rob,Wo-10)", "nat"].difference
    spread = 0.02 / 2**0.5  # of 0.81 and 0.83
    assert difference.stderr == pytest.approx(spread * (1 / 2 + 1 / 9) ** 0.5)


@pytest.mark.parametrize("changes", [{"space": EVALUATION["space"]}, {"fill": "black"}, {"top": 3}])
def test_only_what_was_asked_as_it_asks_fills_its_cells(changes):
    other = record(evaluation=ASKED | changes)
    assert {cell.verdict for cell in cells([other]).values()} == {"missing"}
    assert with_reported(other, paper=TURNS).reported == {}
    assert evaluated_as_in_the_paper(TURNS, record().evaluation)
    assert evaluated_as_in_the_paper(TURNS, record().evaluation | {"compile": True})
    assert not evaluated_as_in_the_paper(INVARIANCE, record().evaluation)


def test_what_is_missing_is_asked_in_its_space():
    needs = table_needs(TURNS, TURNS.layouts)
    first, second = missing_tasks(TURNS, needs, [], seeds=1)
    assert (first.plan, second.plan) == (PLAIN, WORST)
    assert first.attacks == second.attacks == ("grid-7",)
    (asked,) = questions_of(PLAIN, first.asked)
    assert evaluated_as_in_the_paper(TURNS, asked.for_record())
    assert missing_tasks(TURNS, needs, [record()], seeds=1) == (second,)
    assert missing_tasks(TURNS, needs, [record(), record(WORST)], seeds=1) == ()


def test_its_figures_need_the_networks_of_their_methods():
    assert figure_needs(TURNS, ["both"]) == [(PLAIN, "grid-7")]
    ((run, metric),) = figure_needs(TURNS, ["curve"])
    assert (str(run.objective), run.steps, metric) == ("L2(nat, rnd)", 30, "grid-7")
    with pytest.raises(ValueError, match="no figure 'runtime'; choose from curve, both"):
        figure_needs(TURNS, ["runtime"])


def test_how_long_it_takes_is_told_from_records_of_its_data(tmp_path):
    needs = table_needs(TURNS, TURNS.layouts)
    tasks = missing_tasks(TURNS, needs, [], seeds=1)
    known = [record(replace(PLAIN, seed=1), train_seconds=60.0, images=50, evaluate_seconds=3.0)]
    todo = todo_of(tasks, Times.of(TURNS, known, torch.device("cpu")), runs=tmp_path)
    plain, worst = todo.costs
    assert (plain.train, plain.evaluate, plain.basis) == (60.0, 3.0, "measured")
    assert worst.seconds is None  # of another network there is no record


def test_what_it_reports_stands_beside_a_record():
    beside = with_reported(record(WORST), paper=TURNS).reported
    assert {name: value.mean for name, value in beside.items()} == {"nat": 0.85, "grid-7": 0.61}
    assert with_reported(record(WORST)).reported == {}
    assert with_reported(record(evaluation=ASKED | {"limit": 5}), paper=TURNS).reported == {}
    for name in ("glyphs", "The Glyphs", "the glyphs"):
        assert reported(name, "AT(rob, Wo-10)", "grid-7", paper=TURNS).table == "again"
    assert [each.mean for each in all_reported("glyphs", "plain", "grid-7", paper=TURNS)] == [0.2]
    assert [row.misprint for row in paper_rows(paper=TURNS)][-1] == "a digit is missing"


def test_papers_do_not_mix():
    assert reported("glyphs", "plain", "nat") is None
    assert reported("cifar10", "std", "nat", paper=TURNS) is None
    changed = replace(TURNS, numbers=TURNS.numbers.replace("90.00", "91.00"))
    assert reported("glyphs", "plain", "nat", paper=changed).mean == 0.91
    assert reported("glyphs", "plain", "nat", paper=TURNS).mean == 0.9


def test_its_leaderboard_is_by_its_own_metric_and_question():
    elsewhere = made_up_record(PLAIN, {"nat": 0.9, "grid-7": 0.99})
    (board,) = leaderboards(TURNS, [record(), record(WORST, grid=0.7), elsewhere])
    assert (board.name, board.title, board.metric) == ("glyphs", "The Glyphs", "grid-7")
    assert [(row.networks[0], row.attacked.mean, row.seeds) for row in board.rows] == [
        ("resnet32", 0.7, 1),
        ("resnet32", 0.61, 9),
        ("convnet", 0.3, 1),
        ("convnet", 0.2, 9),
    ]
    assert [row.recipe for row in board.rows] == [("the paper's",), (), ("the paper's",), ()]


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        (
            "mean,stderr\n",
            "stderr\n",
            "numbers begin with the line table,dataset,method,metric,mean",
        ),
        ("turns,The Glyphs,plain,nat", "turns,The Glyphs,plian,nat", "did you mean 'plain'"),
        ("turns,The Glyphs,plain,nat", "turns,The Glyph,plain,nat", "did you mean 'The Glyphs'"),
        ("again,The Glyphs,plain", "again,Glyphs,plain", "is of a data set that the paper does"),
        ("plain,grid-7,20.00", "plain,grid-9,20.00", "did you mean 'grid-7'"),
        ("grid-7,20.00,2.00", "nat,20.00,2.00", "2 numbers of turns / The Glyphs / plain / nat"),
        ("nat,90.00", "nat,ninety", "has the mean 'ninety' and the stderr '1.00'"),
        ("nat,90.00", "nat,nan", "has the mean 'nan'"),
        ("grid-7,2.00,1.00", "grid-7,2.00,1.0.0", "and the stderr '1.0.0'"),
        ("again,The Glyphs,plain,grid-7", "again,The Glyphs,plain,grd-7", "did you mean 'grid-7'"),
        ('again,The Glyphs,"AT(rob', 'again,The Glyphs,"AT(rbo', "is of a method that"),
        (
            "grid-7,2.00,1.00",
            "grid-7,2.00",
            "plain,grid-7,2.00 has 5 fields, not 6",
        ),
        ("again,The Glyphs,plain", "against,The Glyphs,plain", "a misprint is told of again / The"),
    ],
)
def test_a_slip_of_the_pen_in_its_numbers_is_told(wrong: str, right: str, told: str) -> None:
    numbers = TURNS.numbers.replace(wrong, right, 1)
    assert numbers != TURNS.numbers
    with pytest.raises(ValueError, match=told):
        paper_rows(paper=replace(TURNS, numbers=numbers))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"datasets": {"glyph": "The Glyphs"}},
            "the layout turns is of a data set .* mean 'glyph'",
        ),
        ({"training": {"cifar10": {}}}, "training is of a data set .*'cifar10': there are glyphs"),
        (
            {"layouts": (replace(TURNS.layouts[0], methods=("plain", "std", "AT(rob,Wo-10)")),)},
            "has a column 'std', of which there is no number",
        ),
        (
            {"layouts": (replace(TURNS.layouts[0], metrics=("grid-7",)),)},
            "'nat': did you mean|'nat': there are grid-7",
        ),
    ],
)
def test_a_slip_of_the_pen_beside_its_numbers_is_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        paper_rows(paper=replace(TURNS, **changes))


def test_a_table_of_several_blocks_has_the_cells_of_them_all() -> None:
    plain, worst = (replace(TURNS.layouts[0], methods=(name,)) for name in TURNS.layouts[0].methods)
    assert len(paper_rows(paper=replace(TURNS, layouts=(plain, worst)))) == 6


def test_numbers_may_have_empty_lines_and_are_asked_for_where_there_are_none() -> None:
    spaced = TURNS.numbers.replace("\n", "\n\n")
    assert len(paper_rows(paper=replace(TURNS, numbers=spaced))) == 6
    with pytest.raises(ValueError, match="not with nothing"):
        paper_rows(paper=replace(TURNS, numbers=""))
