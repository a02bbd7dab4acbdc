"""The paper's numbers: all of them, found by any spelling, and one answer where tables differ."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

import upright
from upright.objective import Objective
from upright.paper import all_reported, paper_rows, reported

NAMES = {"SVHN": "svhn", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
COMPARED_WITH = ("GRN", "ETN", "STN")
MISPRINTS = [
    ("compareadv3", "CIFAR-100", "ALP(rob,S-PGD)"),
    ("wok_diffk", "CIFAR-10", "ALP(rob,Wo-1)"),
]

with (Path(upright.__file__).parent / "paper" / "invariance.csv").open(newline="") as _file:
    LINES = list(csv.DictReader(_file))
SOUND = [
    line for line in LINES if (line["table"], line["dataset"], line["method"]) not in MISPRINTS
]


def test_all_numbers_of_the_paper_are_there():
    assert len(LINES) == len(paper_rows()) == 273
    assert Counter(row.dataset for row in paper_rows()) == {
        "SVHN": sum(line["dataset"] == "SVHN" for line in LINES),
        "CIFAR-10": sum(line["dataset"] == "CIFAR-10" for line in LINES),
        "CIFAR-100": sum(line["dataset"] == "CIFAR-100" for line in LINES),
    }


def test_percentages_become_fractions():
    for line, row in zip(LINES, paper_rows(), strict=True):
        for text, value in ((line["mean"], row.value.mean), (line["stderr"], row.value.stderr)):
            # The double that is nearest to the printed decimals, not one beside it.
            assert value == (float(Fraction(text) / 100) if text else None)


@pytest.mark.parametrize("spelled", [str, str.lower, NAMES.get])
def test_every_number_but_misprints_is_found(spelled):
    for line in SOUND:
        cell = (spelled(line["dataset"]), line["method"], line["metric"])
        assert (float(Fraction(line["mean"]) / 100), line["table"]) in [
            (value.mean, value.table) for value in all_reported(*cell)
        ]


def test_the_spelling_of_an_objective_and_of_an_attack_is_understood():
    for line in SOUND:
        if not line["method"].startswith(COMPARED_WITH):
            dataset, method = line["dataset"], line["method"]
            spelled = str(Objective.parse(method))
            cell = (NAMES[dataset], spelled, line["metric"].lower())
            assert reported(*cell) == reported(dataset, method, line["metric"])
            assert reported(*cell) is not None


def test_a_cell_of_one_value_has_that_value_with_its_standard_error():
    cells = defaultdict(set)
    for line in SOUND:
        if "Wo-1)" not in line["method"]:  # the other name of rnd, with its own numbers
            cells[line["dataset"], line["method"], line["metric"]].add(line["mean"])
    single = {cell: means.pop() for cell, means in cells.items() if len(means) == 1}
    assert len(single) > 150
    for cell, mean in single.items():
        found = reported(*cell)
        assert found.mean == pytest.approx(float(mean) / 100)
        printed = [line for line in SOUND if (line["dataset"], line["method"]) == cell[:2]]
        has_error = any(line["stderr"] for line in printed if line["metric"] == cell[2])
        assert not has_error or found.stderr is not None


@pytest.mark.parametrize(
    ("cell", "answer", "others"),
    [
        (("cifar10", "AT(rob, Wo-10)", "grid-775"), (71.17, 0.26, "compareadv1"), {70.35}),
        (("svhn", "AT(rob, Wo-10)", "grid-775"), (90.35, 0.27, "compareadv1"), {89.75}),
        (("cifar10", "L2(nat, Wo-10)", "grid-775"), (75.46, 0.25, "compareadv3"), {75.64}),
        (("cifar10", "KL(nat, rnd)", "grid-775"), (73.50, 0.19, "compareadv2"), {73.40}),
        (("cifar10", "KL(nat, Wo-1)", "nat"), (89.33, 0.16, "compareadv2"), {89.34}),
    ],
)
def test_where_tables_differ_the_answer_is_the_documented_one(cell, answer, others):
    mean, stderr, table = answer
    first, *rest = all_reported(*cell)
    assert first == reported(*cell)
    assert (first.mean, first.stderr) == pytest.approx((mean / 100, stderr / 100))
    assert first.table == table
    assert others <= {round(100 * value.mean, 2) for value in rest} <= others | {mean}


def test_misprints_are_kept_and_never_the_answer():
    misprints = [row for row in paper_rows() if row.misprint]
    assert {(row.value.table, row.dataset, row.method) for row in misprints} == set(MISPRINTS)
    assert len(misprints) == 4  # natural and grid accuracy of each
    assert reported("cifar100", "ALP(rob, S-PGD)", "nat") is None
    for method in ("ALP(rob, rnd)", "ALP(rob, Wo-1)", "L2(rob, rnd)"):  # one method, three names
        found = [reported("cifar10", method, metric) for metric in ("nat", "grid-775")]
        assert [value.mean for value in found] == [0.8875, 0.7149]
        assert {value.table for value in found} == {"compareadv4"}


@pytest.mark.parametrize(
    "cell",
    [
        ("glyphs", "KL(rob, Wo-10)", "nat"),
        ("cifar10", "KL(rob, Wo-10; λ=4)", "nat"),
        ("cifar10", "KL(rob, Wo-100)", "nat"),
        ("cifar10", "KL(rob, Wo-10)", "grid-3x3x5"),
        ("cifar100", "KL(rob, Wo-10)", "nat"),
    ],
)
def test_what_the_paper_does_not_report_is_none(cell):
    assert reported(*cell) is None
    assert all_reported(*cell) == ()


def test_one_random_draw_has_one_name():
    assert reported("svhn", "AT(rob, rnd)", "nat") == reported("SVHN", "std*", "nat")
    assert reported("svhn", "KL-C(nat, rnd)", "nat") == reported("svhn", "KL(nat, rnd)", "nat")
    assert reported("svhn", "L2(nat, Wo-10)", "nat") != reported("svhn", "ALP(nat, Wo-10)", "nat")
