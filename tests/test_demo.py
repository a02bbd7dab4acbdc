"""The demo runs from end to end; what its numbers are is for `make demo` to show."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from upright.demo import METHODS, main
from upright.records import read
from upright.report.figures import Outcome
from upright.report.saved import read_saved, record_id


def test_demo_trains_evaluates_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(tmp_path, steps=2, test_images=3)
    printed = capsys.readouterr().out
    assert all(method in printed for method in METHODS)
    assert "natural" in printed
    assert "grid-775" in printed
    assert str(tmp_path / "report" / "index.html") in printed
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.width > 2 * picture.height
    page = (tmp_path / "report" / "index.html").read_text()
    for record in read(tmp_path / "records.jsonl").records:
        assert f'id="record-{record_id(record)}"' in page
    saved = read_saved(tmp_path / "saved")
    assert [model.method for model in saved.models] == list(METHODS)


def test_table_gives_the_part_of_the_error_that_a_method_removes() -> None:
    from rich.console import Console

    from upright.demo import _table

    accuracies = (0.1, 0.5, 0.7, 0.85)
    outcomes = [Outcome(m, 0.99, a, 1.0) for m, a in zip(METHODS, accuracies, strict=True)]
    console = Console(width=200, record=True)
    console.print(_table(outcomes))
    rows = [line.split("│") for line in console.export_text().splitlines() if "removed" in line]
    # From 50 % error to 30 and to 15; from 30 to 15.
    assert [cell.strip() for cell in rows[0][4:6]] == ["40 %", "70 %"]
    assert rows[1][5].strip() == "50 %"
