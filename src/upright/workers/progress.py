"""How far many runs are, as one table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from upright.terminal import plain_text

__all__ = ["Doing", "progress_table"]


@dataclass(frozen=True)
class Doing:
    """A run that a worker is at."""

    run: str
    step: int
    """Of its newest checkpoint."""
    steps: int
    node: str
    attempt: int
    """The number of this attempt, counted from 1."""


def progress_table(doing: Sequence[Doing], counts: Mapping[str, int]) -> RenderableType:
    """List what is being done, below how many runs are in which state."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("run", overflow="fold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("node", overflow="fold")
    table.add_column("attempt", justify="right")
    for each in doing:
        table.add_row(*map(plain_text, (each.run, _steps(each), each.node, str(each.attempt))))
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    return Group(plain_text(total), table)  # a table too long for the terminal is cut at its end


def _steps(doing: Doing) -> str:
    return "evaluates" if doing.step == doing.steps else f"{doing.step} of {doing.steps}"
