"""The leaderboard on the report's page: what it shows, how it sorts, and where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from browser import DESKTOP, PHONE, chromium, prefer, set_size
from explorer_in_browser import all_texts, find
from made_up_records import made_up_record, paper_recipe
from upright.cli import main
from upright.record_files import append
from upright.records import Reported
from upright.report.exhibition import record_id
from upright.report.model import Estimate, Leaderboard, Source, Standing, TrainingTime
from upright.report.page.board import leaderboard_sheet

STAR = paper_recipe("cifar10", "std*")
RECORDS = (
    made_up_record(STAR, {"nat": 0.90, "grid-775": 0.60}, train_seconds=90.0),
    made_up_record(replace(STAR, seed=1), {"nat": 0.92, "grid-775": 0.62}, train_seconds=90.0),
    made_up_record(
        replace(STAR, model="resnet8x0.5", cosine=True),
        {"nat": 0.80, "grid-775": 0.40, "refine-1000": 0.35},
        train_seconds=1200.0,
    ),
    made_up_record(
        replace(STAR, model="resnet14"), {"nat": 0.85, "grid-775": 0.10}, train_seconds=240.0
    ),
)
TABLE = "#table-leaderboard-cifar10"


def found(mean: float, *seeds: int, stderr: float | None = None) -> Estimate:
    sources = [
        Source(
            recipe_hash=f"{mean:g}",
            seed=seed,
            commit=None,
            hardware="h",
            finished="2026-01-01T12:30:00+00:00",
        )
        for seed in seeds
    ]
    return Estimate(mean=mean, stderr=stderr, images=10, sources=tuple(sources))


def test_a_row_says_what_was_measured_and_who_reports_what_was_not() -> None:
    ours = Standing(
        networks=("one", "other"),
        method="std*",
        recipe=("the paper's", "batches of 128"),
        natural=found(0.9, 0, 1, 2, stderr=0.001),
        attacked=found(0.7, 0, 1, 2),
        finer=found(0.65, 1),
        seeds=3,
        parameters=1_234_567,
        operations=2_345_000_000,
        training=TrainingTime(seconds=120, beside=(2, 3), hardware="card"),
    )
    theirs = Standing(
        networks=("GRN",),
        method="GRN*",
        natural=None,
        attacked=Reported(mean=0.6, stderr=0.002, table="regspat"),
        seeds=5,
        source="They 2019",
        caveat="by half",
    )
    less = {"natural": found(0.8, 0), "attacked": found(0.5, 0), "finer": None, "seeds": 1}
    more = replace(ours, networks=("third",), **less)
    board = Leaderboard(
        name="set",
        title="SET",
        metric="grid-9",
        finer="deep",
        rows=(ours, theirs, more),
        measured=7,
    )
    sheet = leaderboard_sheet(board)
    assert [heading.text for heading in sheet.headings[2:5]] == ["natural", "grid-9", "deep"]
    assert [heading.number for heading in sheet.headings] == [False] * 2 + [True] * 7
    first, second, _ = sheet.rows
    shown = ["one + other", "std*", "90.00", "70.00", "65.00", "3", "1,234,567", "2.35", "2.0"]
    assert [cell.text for cell in first] == shown
    assert [cell.detail for cell in first[1:5]] == [
        "the paper's, batches of 128",
        "± 0.10",
        "",
        "1 of 3 seeds",
    ]
    assert (first[-1].detail, first[-1].hint) == ("1 of 2 or 3 side by side", "on card")
    runs = ("0.9-0", "0.7-0", "0.65-1")
    assert [cell.link for cell in first[2:5]] == [f"{run}-20260101123000" for run in runs]
    assert [cell.best for cell in first[2:5]] == [True, True, False]  # the last has no rival
    assert [cell.text for cell in second] == ["GRN", "GRN*", "", "60.00", "", "5", "", "", ""]
    assert second[1].detail == "reported by They 2019, table regspat; by half"
    assert (second[3].detail, second[3].link, second[3].best) == ("± 0.20", "", False)
    assert sheet.notes == ("2 of 7 networks, methods and recipes that were measured.",)


def test_results_of_other_data_have_no_leaderboard(made_up_results: Path) -> None:
    text = (made_up_results / "report" / "index.html").read_text()
    assert "eaderboard" not in text.partition("<body>")[2]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    folder = tmp_path_factory.mktemp("board")
    for record in RECORDS:
        append(folder / "made-up.jsonl", record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("upright.report.page.write.all_drawings", lambda *_: ())
        assert main(["report", str(folder), "--out", str(folder)]) == 0
    with chromium() as driver:
        set_size(driver, DESKTOP)
        prefer(driver, "light")
        driver.get((folder / "index.html").as_uri())
        yield driver


def cells(page: webdriver.Chrome, network: str) -> list[str]:
    """The row of a network that was measured here."""
    lines = page.find_elements(By.CSS_SELECTOR, f"{TABLE} tbody tr")
    ours = [line for line in lines if "reported by" not in line.text]
    (line,) = (line for line in ours if find(line, "th").text == network)
    return [cell.text for cell in line.find_elements(By.CSS_SELECTOR, "th, td")]


def test_the_page_shows_means_over_seeds_and_what_the_paper_reports(page: webdriver.Chrome) -> None:
    assert cells(page, "resnet32")[1:6] == [
        "std*\nthe paper's",
        "91.00\n± 1.00",
        "61.00\n± 1.00",
        "",
        "2",
    ]
    assert cells(page, "resnet8x0.5")[1:6] == [
        "std*\nlearning rate along a cosine",
        "80.00",
        "40.00",
        "35.00",
        "1",
    ]
    reported = [
        text for text in all_texts(page, f"{TABLE} small") if text.startswith("reported by")
    ]
    assert len(reported) == 4  # ResNet-32 under both attacks, GRN, STN+
    links = page.find_elements(By.CSS_SELECTOR, f"{TABLE} a")
    targets = {link.get_attribute("href").partition("#record-")[2] for link in links}
    assert targets == {record_id(record) for record in RECORDS if record.seed == 0}


def test_numbers_sort_as_numbers_and_empty_cells_stay_last(page: webdriver.Chrome) -> None:
    headings = page.find_elements(By.CSS_SELECTOR, f"{TABLE} thead button")
    (heading,) = (each for each in headings if each.text.startswith("training"))
    for expected in (
        ["resnet8x0.5", "resnet14", "resnet32"],
        ["resnet32", "resnet14", "resnet8x0.5"],
    ):
        heading.click()
        assert all_texts(page, f"{TABLE} tbody th")[:3] == expected


def test_a_phone_shows_it_without_scrolling_the_page_sideways(page: webdriver.Chrome) -> None:
    set_size(page, PHONE)
    page.refresh()
    assert page.execute_script("return document.documentElement.scrollWidth") == PHONE[0]
    for link in page.find_elements(By.CSS_SELECTOR, ".top nav a"):
        assert link.rect["x"] + link.rect["width"] <= PHONE[0]
    assert page.get_log("browser") == []
