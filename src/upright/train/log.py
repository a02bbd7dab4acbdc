"""The log of a run: JSON lines, TensorBoard events where asked, and a line in the terminal."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from upright.files import write_whole
from upright.train.recipe import Recipe

__all__ = ["Log"]


class Log:
    """Writes a line at the end of each log interval."""

    def __init__(
        self, path: Path, start: int, recipe: Recipe, *, bar: bool, tensorboard: bool
    ) -> None:
        self._path, self._batch = path / "log.jsonl", recipe.batch
        self._last, self._began = start, time.perf_counter()
        _drop_lines_after(self._path, start)
        self._events = _events(path / "tensorboard", start) if tensorboard else None
        columns = (
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        console = Console(stderr=True, quiet=not bar)  # see ``_bar`` of ``evaluation.run``
        self._bar = Progress(*columns, console=console, disable=not bar)
        self._task = self._bar.add_task("", total=recipe.steps, completed=start)

    def __enter__(self) -> Log:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._events is not None:
            self._events.close()

    def write(self, step: int, means: dict[str, float], learning_rate: float) -> None:
        """Write the means since the last line, ``step`` steps into the run."""
        seconds = time.perf_counter() - self._began
        line = {
            "step": step,
            **means,
            "learning_rate": learning_rate,
            "images_per_second": round((step - self._last) * self._batch / seconds, 1),
        }
        _append(self._path, json.dumps(line) + "\n")
        if self._events is not None:
            for name, value in line.items():
                self._events.add_scalar(name, value, step)
        self._bar.update(self._task, completed=step, description=_in_words(line))
        self._last, self._began = step, time.perf_counter()


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
