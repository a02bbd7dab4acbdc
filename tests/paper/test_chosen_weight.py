"""Which λ fills a method's cells: the default, or one that records call for."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from made_up_records import made_up_record, paper_recipe
from upright.paper import INVARIANCE, paper_method, wanted
from upright.paper.tables import fill_tables, select
from upright.paper.weights import called_for
from upright.record_files import RecordFolder
from upright.report.methods import methods_to_markdown
from upright.report.page.sheet import paper_sheet
from upright.report.tables import to_csv, to_latex, to_markdown

ROOT = Path(__file__).parents[2]
GRID = {"nat": 0.9, "grid-775": 0.7}


CHOSEN = replace(
    INVARIANCE, weights={("cifar10", "KL(rob, Wo-10)"): 4.0, ("cifar10", "L2(nat, rnd)"): 2.0}
)
"""The paper, with weights of which we chose two ourselves."""


def test_a_chosen_weight_replaces_the_default():
    chosen = paper_recipe("cifar10", "KL(rob, Wo-10; λ=4)")
    choice = select(CHOSEN, tables=["regspat"], datasets=["cifar10"], methods=["KL(rob,Wo-10)"])
    (table,) = fill_tables(CHOSEN, choice, [made_up_record(chosen, GRID)])
    cells = [row.cells[0] for row in table.rows]
    assert [(cell.measured.mean, cell.weight) for cell in cells] == [(0.9, 4.0), (0.7, 4.0)]
    assert paper_method(chosen, paper=CHOSEN) == "KL(rob,Wo-10)"
    assert paper_method(paper_recipe("cifar10", "KL(rob, Wo-10)"), paper=CHOSEN) is None
    assert paper_method(paper_recipe("svhn", "KL(rob, Wo-10)"), paper=CHOSEN) == "KL(rob,Wo-10)"


def test_a_chosen_weight_is_told_in_tables_and_on_the_page():
    chosen = paper_recipe("cifar10", "KL(rob, Wo-10; λ=4)")
    choice = select(
        CHOSEN, tables=["regspat"], datasets=["cifar10"], methods=["KL(rob,Wo-10)", "std"]
    )
    tables = fill_tables(CHOSEN, choice, [made_up_record(chosen, GRID)])
    assert "| `KL(rob, Wo-10)`, λ = 4 | 1 | 90.00 |" in methods_to_markdown(tables)
    lines = list(csv.DictReader(io.StringIO(to_csv(tables), newline="")))
    weights = {line["method"]: line["chosen_weight"] for line in lines}
    assert weights == {"KL(rob,Wo-10)": "4.0", "std": ""}
    assert to_markdown(tables[0]).count("λ = 4") == 1  # one note, for both of its numbers
    assert to_latex(tables[0]).count("= 4") == 1
    (hint,) = {cell.hint for row in paper_sheet(tables[0]).rows for cell in row if "λ" in cell.hint}
    assert hint.endswith("; λ = 4")


@pytest.mark.parametrize("name", ["L2(nat,rnd)", "ALP(nat,rnd)", "ALP(nat,Wo-1)"])
def test_it_is_chosen_for_every_name_of_the_same_runs(name):
    (recipe,) = wanted("cifar10", name, paper=CHOSEN)
    assert recipe == paper_recipe("cifar10", "L2(nat, rnd; λ=2)")


def test_the_weights_of_the_cells_are_those_that_the_records_call_for():
    """Where it fails, a λ has become better than the one of the cells: change ``_WEIGHTS``."""
    assert INVARIANCE.weights == called_for(INVARIANCE, RecordFolder(ROOT / "results").read())
