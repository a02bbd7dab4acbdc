"""Numbers that were asked for in another way than the paper's are told apart where they stand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import made_up_report as made_up
from made_up_records import made_up_record, paper_recipe
from rigid_spaces import rigid
from upright.evaluation.question import LATER, Question
from upright.objective import LocNet
from upright.paper import INVARIANCE
from upright.paper.tables import fill_tables, select
from upright.record_files import append
from upright.records import Record
from upright.report.asked import _ANY, _PAPER, unlike_the_paper
from upright.report.comparable import comparable, setting_in_words
from upright.report.page import read_contents, write_report
from upright.report.page.sheet import Sheet, SheetCell, methods_sheet, paper_sheet, records_sheet
from upright.report.runs import group_runs, told_apart
from upright.report.tables import to_markdown
from upright.train import Mean, Pair
from upright.tta import Averaging

PLAIN = made_up.RECORDS[4]
UNLIKE: dict[str, tuple[Any, str]] = {
    "top": (5, "top-5"),
    "include_identity": (True, "identity included"),
    "space": (
        str(rigid(0.1, 15, unit="image")),
        "shift by at most 10 % of the image that is seen, rotate by at most 15 degrees",
    ),
    "fill": ("reflection", "reflection fill"),
    "interpolation": ("bicubic", "bicubic interpolation"),
    "canvas": (4, "canvas of 4 px"),
    "view": (24, "view of 24 px"),
    "split": ("train", "train images"),
    "limit": (100, "the first 100 images"),
    "sample": (100, "100 images drawn at random"),
    "resize": (64, "resized to 64 px"),
    "center_crop": (56, "cropped to 56 px"),
    "weights": ("bfloat16", "weights rounded to bfloat16"),
}


def asked(record: Record, **evaluation: Any) -> Record:
    return replace(record, evaluation=record.evaluation | evaluation)


def higher(**evaluation: Any) -> Record:
    """The same run, asked something easier: its numbers are the highest there are."""
    return replace(asked(PLAIN, **evaluation), measured={"nat": 0.999, "grid-775": 0.99})


def column(sheet: Sheet, heading: str) -> dict[tuple[str, str], SheetCell]:
    """Cells by the name of the line and by what stands below it."""
    place = [each.text for each in sheet.headings].index(heading)
    return {(row[0].text, row[0].detail): row[place] for row in sheet.rows}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_setting_that_is_not_the_paper_s_is_said(name: str) -> None:
    value, words = UNLIKE[name]
    assert unlike_the_paper(PLAIN) == ""
    assert unlike_the_paper(asked(PLAIN, **{name: value})) == words
    assert setting_in_words(asked(PLAIN, **{name: value})).endswith(f"200 images ({words})")


def test_every_setting_of_an_evaluation_has_words_or_does_not_matter() -> None:
    plain = Question().for_record() | LATER
    assert plain.keys() == {*_PAPER, *_ANY} - {"weights", "code_of_attacks"}
    assert UNLIKE.keys() == _PAPER.keys()
    assert {name: plain[name] for name in plain.keys() - {*_ANY}}.items() <= _PAPER.items()


def test_what_differs_in_several_ways_or_is_not_known_here_is_said_in_full() -> None:
    both = asked(
        PLAIN, top=5, fill="border", newer=[1], precision="float16", compile=True, limit=300
    )
    assert unlike_the_paper(both) == "top-5; border fill; newer [1]"
    assert unlike_the_paper(asked(PLAIN, space={"max_dx": "x"})) == "other poses"


@pytest.mark.parametrize("name", UNLIKE)
def test_the_best_of_a_column_is_the_best_of_one_setting(name: str) -> None:
    value, words = UNLIKE[name]
    easier, rival = higher(**{name: value}), asked(made_up.RECORDS[0], **{name: value})
    for records, best in (
        ([easier], [(PLAIN.method, "")]),
        ([easier, rival], [(PLAIN.method, ""), (PLAIN.method, words)]),
    ):
        cells = column(methods_sheet(group_runs([*made_up.RECORDS, *records])), "grid-775 %")
        assert cells[PLAIN.method, words].text == "99.00"
        assert [line for line, cell in cells.items() if cell.best] == best
        # Each setting stands by itself, the paper's first.
        assert [detail for _, detail in cells] == sorted(detail for _, detail in cells)


def test_the_best_on_other_images_of_the_same_name_is_another_best() -> None:
    others = [
        replace(each, data_digest={"test_images": "1"}, data_variant="official")
        for each in (higher(), made_up.RECORDS[0])
    ]
    sheet = methods_sheet(group_runs([*made_up.RECORDS, *others]))
    place = [each.text for each in sheet.headings].index("grid-775 %")
    data = [each.text for each in sheet.headings].index("data")
    assert [row[data].detail for row in sheet.rows if row[place].best] == ["official", ""]


def test_records_and_the_page_say_it_too(tmp_path) -> None:
    for record in (*made_up.RECORDS, higher(top=5)):
        append(tmp_path / "made-up.jsonl", record)
    contents = read_contents(tmp_path)
    (row,) = [row for row in records_sheet(contents.records).rows if row[1].detail]
    assert row[1].detail == "top-5"
    text = write_report(contents, tmp_path / "out").read_text()
    assert len(re.findall(r"</a><small>top-5</small></th>", text)) == 1
    assert len(re.findall(r"<small>top-5</small></td>", text)) == 1


@pytest.mark.parametrize(("natural", "above"), [(0.90, True), (0.95, False), (0.96, False)])
def test_an_attack_above_natural_accuracy_is_explained(natural: float, above: bool) -> None:
    recipe = paper_recipe("cifar10", "AT(rob, S-PGD)")
    record = made_up_record(recipe, {"nat": natural, "grid-775": 0.8, "s-pgd": 0.95})
    explained = "does not try images as they are, unless the identity is included"
    methods, records = methods_sheet(group_runs([record])), records_sheet([record])
    assert (column(methods, "s-pgd %")[record.method, ""].detail == "above natural") is above
    assert (records.rows[0][4].detail == "s-pgd above natural") is above
    shown = [methods, records]
    for table in fill_tables(
        INVARIANCE, select(INVARIANCE, datasets=["cifar10"], methods=[record.method]), [record]
    ):
        if any(row.metric == "S-PGD" for row in table.rows):
            shown.append(paper_sheet(table))
            assert (explained in to_markdown(table)) is above
    assert len(shown) == 3
    for sheet in shown:
        assert any(explained in note for note in sheet.notes) is above


def test_means_of_other_members_and_pairs_of_other_locnets_are_other_runs():
    recipes = [paper_recipe("cifar10", "std*", seed=seed) for seed in range(4)]
    pairs = [(0, 1), (2, 3), (0, 2), (1, 2), (1, 3)]
    means = [Mean(members=tuple(recipes[seed] for seed in seeds)) for seeds in pairs]
    locnets = [replace(each, objective=LocNet("black")) for each in recipes]
    together = [Pair(locnet=each, classifier=recipes[0], oracle=False) for each in locnets]
    for plans in (means, together):
        measured = [0.1 * (place + 1) for place in range(len(plans))]
        records = [
            made_up_record(plan, {"nat": each}) for plan, each in zip(plans, measured, strict=True)
        ]
        (run,) = group_runs(records)
        assert len(run.records) == len(plans)
        assert run.measured["nat"].mean == pytest.approx(sum(measured) / len(measured))


def test_of_one_run_the_newest_record_counts_wherever_it_lies_and_in_whichever_time_zone():
    recipe = paper_recipe("cifar10", "std*")
    old, new = "2026-11-20T02:00:00+05:00", "2026-11-20T01:00:00+00:00"
    for order in ((old, new), (new, old)):
        records = [
            made_up_record(recipe, {"nat": 0.9 if time == new else 0.1}, finished=time)
            for time in order
        ]
        (run,) = group_runs(records)
        assert run.measured["nat"].mean == 0.9


def test_runs_of_one_name_are_told_apart_by_what_most_of_them_do_not_have():
    """Four of one name, all but one changed in one thing; and two that are equally usual."""
    recipe = paper_recipe("cifar100", "std*")
    changed = [
        recipe,
        replace(recipe, weight_decay=5e-4),
        replace(recipe, steps=80_000),
        replace(recipe, drops=(0.25, 0.5)),
        paper_recipe("cifar100", "std"),
        paper_recipe("cifar100", "std", batch=128),
        paper_recipe("cifar100", "AT(rob, Wo-10)"),
    ]
    runs = group_runs([made_up_record(each, {"nat": 0.5}) for each in changed])
    told = dict(zip((run.records[0].recipe_hash for run in runs), told_apart(runs), strict=True))
    assert [told[each.hash] for each in changed] == [
        "",
        "weight decay 0.0005",
        "80,000 steps",
        "learning rate dropped at 0.25 and 0.5",
        "batches of 64",
        "batches of 128",
        "",
    ]


def test_what_a_recipe_adds_is_told_of_all_that_have_it_and_of_no_other():
    """Also where most of a name have it, or a name has one run alone, or members of a mean do."""
    plain = paper_recipe("cifar10", "std*")
    taught = replace(plain, teacher="runs/large", teacher_digest="2" * 64, teacher_share=0.5)
    cut = replace(taught, cutout=8)
    alone = replace(taught, model="resnet20")
    mean = Mean(members=(taught, replace(taught, seed=1)), over=Averaging.parse("mirror"))
    changed = [plain, taught, cut, alone, mean]
    runs = group_runs([made_up_record(each, {"nat": 0.5}) for each in changed])
    told = dict(zip((run.records[0].recipe_hash for run in runs), told_apart(runs), strict=True))
    teacher = "taught by runs/large, 50% of each label by the teacher"
    assert [told[each.hash] for each in changed] == [
        "",
        teacher,
        f"cutout of 8 px, {teacher}",
        teacher,
        teacher,
    ]


@pytest.mark.parametrize("name", ["{x}", "{", "}", "{0.a}", "{:9000}"])
def test_names_that_a_record_brings_are_shown_and_not_followed(name: str) -> None:
    record = made_up_record(paper_recipe("cifar10", "std"), {"nat": 0.5})
    strange = replace(record, evaluation=record.evaluation | {name: 3})
    assert unlike_the_paper(strange) == f"{name} 3"


def test_an_attack_of_one_s_own_leaves_the_numbers_of_others_in_their_place() -> None:
    """No figure loses a run by its objective's code, or by that of an attack beside the grid."""
    ours, searched, beside = (
        made_up_record(paper_recipe("cifar10", name), {"nat": 0.9, "grid-775": 0.5})
        for name in ("std*", "AT(rob, Wo-10)", "KL(nat, rnd)")
    )
    searched = replace(searched, recipe=searched.recipe | {"objective_digest": "1" * 64})
    beside = asked(beside, code_of_attacks="2" * 64)
    assert unlike_the_paper(beside) == ""
    assert comparable([ours, searched, beside]) == (ours, searched, beside)
    moved = asked(beside, code_of_families="3" * 64)
    assert unlike_the_paper(moved) == "families by code 33333333"
    assert moved not in comparable([ours, searched, beside, moved])
