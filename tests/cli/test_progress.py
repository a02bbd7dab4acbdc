"""What a training run says of its progress: a bar that moves, the time left, and a word of warning
where it will take hours."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import pytest
import torch
from rich.console import Console

from tiny_runs import register_tiny, tiny_recipe, tiny_run
from upright.train import LongRun, log
from upright.train.log import Log, Pace, training_bar

CPU = torch.device("cpu")


class Clock:
    """A clock that goes on by so many seconds each time it is looked at."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_the_bar_moves_between_the_lines_of_the_log(tmp_path: Path) -> None:
    recipe = tiny_recipe(steps=100)
    with Log(tmp_path, 0, recipe, bar=False, tensorboard=False, clock=Clock(0.3)) as written:
        (task,) = written._bar.tasks
        done = []
        for step in range(1, 7):
            written.passed(step)
            done.append(task.completed)
    assert done == [0, 2, 2, 4, 4, 6]  # every half a second at the most


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_steps_and_the_time_left_are_whole_in_every_terminal(columns: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=columns, color_system=None)
    bar, seconds = training_bar(console, show=True), Clock(1.0)
    bar.get_time = seconds
    task = bar.add_task("", total=80_000)
    for step in range(1, 9):
        bar.update(task, completed=7 * step)
    bar.update(task, description="loss 2.301, natural 12.5 %, transformed 10.0 %, 512 images/s")
    console.print(bar.get_renderable())
    (line,) = out.getvalue().splitlines()
    assert line.startswith("step 56/80,000 ")
    left = bar.tasks[0].time_remaining
    assert left is not None
    assert f" {left // 3600:.0f} h {left % 3600 // 60:02.0f} min left " in line
    assert ("512 images/s" in line) == (columns == 200)


@pytest.mark.parametrize(
    ("steps", "tick", "words"),
    [
        (80_000, 0.1, "80,000 steps will take about 2 h 13 min on this processor"),
        (80_000, 4.0, "80,000 steps will take about 3.7 days on this processor"),
        (35_999, 0.1, None),
        (2, 7000.0, "2 steps will take about 3 h 53 min"),
    ],
)
def test_hours_on_a_processor_are_told_once_with_what_to_do(
    steps: int, tick: float, words: str | None
) -> None:
    watch = Pace(steps, CPU, clock=Clock(tick))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(200):
            watch.passed_one()
    assert len(said) == (words is not None)
    for each in said:
        assert each.category is LongRun
        assert str(each.message).startswith(words or "")
        assert "(--steps)" in str(each.message)
        assert "a GPU" in str(each.message)


def test_a_gpu_is_not_watched() -> None:
    watch = Pace(10**9, torch.device("cuda"), clock=Clock(10.0))
    for _ in range(10):
        watch.passed_one()  # a warning would be an error


def test_a_run_moves_its_bar_and_tells_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_tiny(monkeypatch)
    moved = []
    monkeypatch.setattr(Log, "passed", lambda _self, step: moved.append(step))
    monkeypatch.setattr(log, "_WATCHED_SECONDS", 0.0)
    monkeypatch.setattr(log, "_LONG_SECONDS", 0.0)
    with pytest.warns(LongRun, match="12 steps will take about"):
        tiny_run(tmp_path / "run")
    assert moved == list(range(1, 13))
    assert log._MOVED_SECONDS <= 1
