"""The front page's table: what was measured of a few methods, beside what the paper prints."""

from __future__ import annotations

from made_up_records import made_up_record, paper_recipe
from upright.paper import INVARIANCE
from upright.paper.tables import fill_tables, select
from upright.report.headline import headline_to_markdown


def table(*records):
    """The lines of the table, each as its cells; and the sentence below it."""
    tables = fill_tables(INVARIANCE, select(INVARIANCE), records)
    text = headline_to_markdown(tables, INVARIANCE.headline, paper_seeds=5)
    lines, _, below = text.partition("\n\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    return {row[0]: row[1:] for row in cells}, below.strip()


def record(objective, dataset, natural, grid, *, seed=0):
    recipe = paper_recipe(dataset, objective, seed=seed)
    return made_up_record(recipe, {"nat": natural, "grid-775": grid})


def test_both_accuracies_stand_beside_the_paper_s():
    rows, below = table(
        record("std", "cifar10", 0.9, 0.125),
        record("L2(rob, Wo-10)", "cifar10", 0.91, 0.79),
        record("L2(rob, Wo-10)", "cifar10", 0.93, 0.81, seed=1),
    )
    assert rows["trained by: natural → grid-775"] == ["CIFAR-10, %", "paper"]
    # The paper's as in its tables: 92.11 and 9.52, 90.53 and 77.06.
    assert rows["`std`: usual training"] == ["90.0 → 12.5", "92.1 → 9.5"]
    assert rows["`L2(rob, Wo-10)`: that, with another"] == ["92.0 → 80.0", "90.5 → 77.1"]
    assert rows["`std*`: random turns and shifts"] == ["", ""]
    assert below == "Means over 1 to 2 seeds; the paper's are over 5."


def test_a_data_set_has_its_columns_once_something_of_it_is_recorded():
    rows, _ = table(record("std", "svhn", 0.9, 0.1), record("std", "cifar100", 0.7, 0.1))
    assert rows["trained by: natural → grid-775"] == ["SVHN, %", "paper", "CIFAR-100, %", "paper"]


def test_without_records_it_says_so():
    assert table()[1] == "Nothing of it has been measured yet."
