"""What the benchmarks share: fair clocks, counted passes, tables and JSON."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

__all__ = [
    "Counted",
    "Timings",
    "in_a_row",
    "interleave",
    "machine",
    "print_table",
    "seconds_of",
    "write_json",
]


@dataclass(frozen=True)
class Timings:
    """Seconds of each job, by its name: one for each round."""

    seconds: dict[str, list[float]]

    def median(self, job: str) -> float:
        return statistics.median(self.seconds[job])

    def ratio(self, job: str, to: str) -> float:
        """The median over rounds of a job's time to another's in the same round.

        Two jobs of one round share whatever else the machine did, which medians of each do not.
        """
        pairs = zip(self.seconds[job], self.seconds[to], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def seconds_of(job: Callable[[], object]) -> float:
    """Run a job once; what it left to a GPU is waited for."""
    _wait()
    began = time.perf_counter()
    job()
    _wait()
    return time.perf_counter() - began


def interleave(repeats: int, jobs: Mapping[str, Callable[[], object]]) -> Timings:
    """Run all jobs in turn, forwards and backwards, so that none has the better moments."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(repeats):
        for name in list(jobs)[:: 1 if repeat % 2 == 0 else -1]:
            seconds[name].append(seconds_of(jobs[name]))
    return Timings(seconds)


def in_a_row(job: Callable[[], object], times: int) -> Callable[[], None]:
    """Make one job of a job that is run so many times, without a wait between."""

    def run() -> None:
        for _ in range(times):
            job()

    return run


class Counted(nn.Module):
    """Passes images on to a model, and notes how many came at once."""

    def __init__(self, model: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.batches: list[int] = []
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append(len(images))
        return self.model(images)

    def take(self) -> list[int]:
        """Give the sizes of the batches since the last call."""
        taken, self.batches = self.batches, []
        return taken


def machine(device: str) -> str:
    """Say what the figures were measured on."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"CPU ({platform.machine()}), {threads} threads, torch {torch.__version__}"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: text in the first column, figures in the others."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    # A table that is cut off is of no use in a log, which has no width of its own.
    console = Console()
    Console(width=None if console.is_terminal else 130).print(table)


def write_json(path: Path | None, figures: dict[str, object]) -> None:
    """Write the figures where a file was named."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
