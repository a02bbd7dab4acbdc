"""What a run tells while it trains.

Its log, as JSON lines and as TensorBoard events where asked; a bar in the terminal; and from its
first seconds on, whether it will take hours.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from upright.callers import warn_caller
from upright.files import write_whole
from upright.train.recipe import Recipe

__all__ = ["Log", "LongRun", "Pace", "in_words", "training_bar"]

_MOVED_SECONDS = 0.5
_WATCHED_SECONDS = 5.0
_LONG_SECONDS = 3600.0


class _Left(ProgressColumn):
    """The time left, which is never cut short."""

    max_refresh = 0.5

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        return Text("" if left is None else f"{in_words(left)} left")


class _Words(ProgressColumn):
    """What comes last, and is cut where the terminal is narrow."""

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


def training_bar(console: Console, *, show: bool) -> Progress:
    """Make a bar of steps: how many are done, the time left, and the last line of the log."""
    steps = TextColumn("step {task.completed:,}/{task.total:,}")
    columns = (steps, BarColumn(bar_width=16), _Left(), _Words())
    console.quiet = not show  # see ``_bar`` of ``evaluation.run``
    return Progress(*columns, console=console, disable=not show)


class Log:
    """Writes a line at the end of each log interval, and moves the bar between them."""

    def __init__(
        self,
        path: Path,
        start: int,
        recipe: Recipe,
        *,
        bar: bool,
        tensorboard: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path, self._batch, self._clock = path / "log.jsonl", recipe.batch, clock
        self._last, self._began = start, clock()
        self._moved = self._began
        _drop_lines_after(self._path, start)
        self._events = _events(path / "tensorboard", start) if tensorboard else None
        self._bar = training_bar(Console(stderr=True), show=bar)
        self._task = self._bar.add_task("", total=recipe.steps, completed=start)

    def __enter__(self) -> Log:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._events is not None:
            self._events.close()

    def passed(self, step: int) -> None:
        """Move the bar, a few times a second; nothing is asked of the device for it."""
        if (now := self._clock()) - self._moved >= _MOVED_SECONDS:
            self._moved = now
            self._bar.update(self._task, completed=step)

    def write(self, step: int, means: dict[str, float], learning_rate: float) -> None:
        """Write the means since the last line, ``step`` steps into the run."""
        seconds = self._clock() - self._began
        line = {
            "step": step,
            "averaged_steps": step - self._last,  # fewer after a resumption between two lines
            **means,
            "learning_rate": learning_rate,
            "images_per_second": round((step - self._last) * self._batch / seconds, 1),
        }
        _append(self._path, json.dumps(line) + "\n")
        if self._events is not None:
            for name, value in line.items():
                self._events.add_scalar(name, value, step)
        self._bar.update(self._task, completed=step, description=_in_words(line))
        self._last, self._began = step, self._clock()


def _in_words(line: dict[str, Any]) -> str:
    words = [f"loss {line['total']:.3f}"]
    for part, name in (("natural_accuracy", "natural"), ("transformed_accuracy", "transformed")):
        if part in line:
            words.append(f"{name} {100 * line[part]:.1f} %")
    return ", ".join([*words, f"{line['images_per_second']:.0f} images/s"])


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a") as file:
            file.write(line)
    except OSError as error:
        raise OSError(
            f"cannot write to {path} ({error.strerror}); make room and use --resume"
        ) from error


def _drop_lines_after(path: Path, step: int) -> None:
    """Remove what an interrupted run wrote after its last checkpoint."""
    if path.exists():
        content = path.read_bytes()
        kept = b"".join(
            line for line in content.splitlines(keepends=True) if _step_of(line) <= step
        )
        if kept != content:  # else a full disk would stop a run that has nothing to drop
            write_whole(path, kept)


def _step_of(line: bytes) -> float:
    """The step of a line, or infinity for a line that was torn when the run was killed."""
    try:
        return int(json.loads(line)["step"]) if line.endswith(b"\n") else math.inf
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return math.inf


def _events(path: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("TensorBoard is missing: pip install 'upright[tensorboard]'") from error
    # TensorBoard then forgets what an interrupted run wrote after its last checkpoint.
    return SummaryWriter(str(path), purge_step=start + 1)


class LongRun(UserWarning):
    """A run that will take hours, because it has no GPU."""


class Pace:
    """Watches the first of so many steps on a CPU and says, once, if all will take hours."""

    def __init__(
        self,
        steps: int,
        device: torch.device,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._steps, self._clock, self._watches = steps, clock, device.type == "cpu"
        self._passed, self._began = 0, 0.0

    def passed_one(self) -> None:
        """Take note that another step is done, of each of the runs that train side by side."""
        if not self._watches:
            return
        now = self._clock()
        if self._passed == 0:
            self._began = now  # from here on: the very first step may take longer
        elif now - self._began >= _WATCHED_SECONDS:
            self._watches = False
            self._tell(self._steps * (now - self._began) / self._passed)
        self._passed += 1

    def _tell(self, seconds: float) -> None:
        if seconds >= _LONG_SECONDS:
            warn_caller(
                f"{self._steps:,} steps will take about {in_words(seconds)} on this "
                "processor; stop with Ctrl-C and give fewer (--steps), a smaller network (--model) "
                "or a GPU (--device cuda), or let it run",
                LongRun,
            )


def in_words(seconds: float) -> str:
    """Write a time as people would say it.

    >>> [in_words(each) for each in (45, 600, 11_400, 300_000)]
    ['45 s', '10 min', '3 h 10 min', '3.5 days']
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{seconds / 86_400:.1f} days"
