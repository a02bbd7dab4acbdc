"""The demo runs from end to end; what its numbers are is for `make demo` to show."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from upright import demo
from upright.cli import main as cli_main
from upright.demo import METHODS, _grid, _Job, _Lines, _recipe, _table, _train_and_evaluate, main
from upright.record_files import read
from upright.report.exhibition import record_id
from upright.report.figures import Outcome
from upright.report.saved import read_saved
from upright.space import PAPER, Space


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


@pytest.mark.parametrize(
    ("space", "grid"),
    [
        ("shift(3px) rotate(30)", "grid-775"),
        ("zoom", "grid-31"),
        ("shift rotate zoom brightness contrast", "grid-3x3x3x3x3x3"),
    ],
)
def test_a_grid_over_many_axes_has_fewer_values_but_the_identity(space: str, grid: str) -> None:
    found = _grid(Space.of(space))
    assert str(found) == grid
    assert found.passes_per_image <= 1000


def test_a_network_of_the_demo_is_trained_tipped_and_shown_in_the_space_that_was_asked_for(
    tmp_path: Path,
) -> None:
    space = Space.of("rotate(10) zoom(0.9..1.1)")
    outcome = _train_and_evaluate(_Job(_recipe("AT(rob, Wo-2)", 2, space), tmp_path, 0, 3))
    (record,) = read(tmp_path / "records.jsonl").records
    assert record.measured == {"nat": outcome.natural, "grid-31x11": outcome.grid}
    assert record.recipe["space"] == record.evaluation["space"] == str(space)
    assert read_saved(tmp_path / "saved").shown.space == space


def written(width: int, *, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    return console, out


def made_up_jobs(out: Path) -> list[_Job]:
    """One that waits, two that train, of which one has half a line in its log, and one trained."""
    jobs = [_Job(_recipe(method, 1200), out, n, 300) for n, method in enumerate(METHODS)]
    for job, text in zip(
        jobs[1:], ("", '{"step": 400}\n{"st', '{"step": 1190}\n{"step": 1200}\n'), strict=True
    ):
        job.folder.mkdir(parents=True)
        (job.folder / "log.jsonl").write_text(text)
    return jobs


def test_each_network_says_how_far_it_is(tmp_path: Path) -> None:
    jobs = made_up_jobs(tmp_path)
    assert [job.step() for job in jobs] == [None, 0, 400, 1200]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_has_a_live_line_for_each_network(tmp_path: Path, width: int) -> None:
    jobs = made_up_jobs(tmp_path)
    console, out = written(width, terminal=True)
    with _Lines(jobs, console) as lines:
        lines.look()
        lines.finish(jobs[3], Outcome(METHODS[3], 0.97, 0.8, 60.0))
    last = " ".join(out.getvalue().rpartition("std ")[2].split())
    assert all(text in last for text in ("waits", "trains", METHODS[1], METHODS[2], METHODS[3]))
    assert "natural 97.0 %," in last
    assert "is tipped over" not in last


def test_elsewhere_a_line_comes_when_something_changes(tmp_path: Path) -> None:
    jobs = made_up_jobs(tmp_path)
    console, out = written(200, terminal=False)
    with _Lines(jobs, console) as lines:
        for _ in range(3):
            lines.look()
        lines.finish(jobs[3], Outcome(METHODS[3], 0.97, 0.8, 60.0))
        lines.look()
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "std*: trains",
        "AT(rob, Wo-10): trains",
        "KL(rob, Wo-10; λ=1): is tipped over",
        "KL(rob, Wo-10; λ=1): natural 97.0 %, grid-775 80.0 %, 60 s",
    ]


def test_it_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str]] = []
    monkeypatch.setattr(demo, "main", lambda out, *, space: asked.append((out, str(space))))
    assert cli_main(["demo"]) == 0
    assert cli_main(["demo", "--out", "elsewhere", "--space", "zoom(2)"]) == 0
    assert asked == [(Path("runs/demo"), str(PAPER)), (Path("elsewhere"), "zoom(0.5..2)")]


def test_table_gives_the_part_of_the_error_that_a_method_removes() -> None:
    accuracies = (0.1, 0.5, 0.7, 0.85)
    outcomes = [Outcome(m, 0.99, a, 1.0) for m, a in zip(METHODS, accuracies, strict=True)]
    console = Console(width=200, record=True)
    console.print(_table(outcomes, "grid-775"))
    rows = [line.split("│") for line in console.export_text().splitlines() if "removed" in line]
    # From 50 % error to 30 and to 15; from 30 to 15.
    assert [cell.strip() for cell in rows[0][4:6]] == ["40 %", "70 %"]
    assert rows[1][5].strip() == "50 %"
