"""Results as tables for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from upright.evaluation import ORACLE, Evaluation, Interval
from upright.space import TransformSpace

__all__ = ["roomy_console", "show_evaluation"]

_COLUMNS = 80
"""What a table of figures needs."""


def roomy_console() -> Console:
    """Standard output, as wide as the terminal but no narrower than a table.

    A narrow terminal breaks lines, but every figure is there; ``rich`` would cut them off.
    """
    console = Console()
    console.width = max(console.width, _COLUMNS)
    return console


def show_evaluation(evaluation: Evaluation, *, title: str, space: TransformSpace) -> None:
    """Print an evaluation; an oracle's is marked in its title, in every line and below.

    The title has paths, of any length. It stands on a line of its own, which nothing breaks: who
    looks for a name in the output finds it.
    """
    first, note = ("ORACLE ", f"\n{ORACLE}") if evaluation.oracle else ("", "")
    console = roomy_console()
    console.print(Text(first + title, "bold"), soft_wrap=True)
    console.print(_table(evaluation))
    console.print(Text(space.in_words() + note, "dim"), soft_wrap=True)


def _table(evaluation: Evaluation) -> Table:
    """A line for each attack; accuracies in percent."""
    mark = " (oracle)" if evaluation.oracle else ""
    table = Table()
    table.add_column("attack", overflow="fold")
    for heading in ("accuracy %", "95 % interval", "forward passes", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    attacks = evaluation.attacks.values()
    seconds = evaluation.seconds - sum(result.seconds for result in attacks)
    natural, interval = evaluation.natural_accuracy, evaluation.natural_interval
    table.add_row(f"natural{mark}", *_figures(natural, interval, len(evaluation), seconds))
    for result in attacks:
        figures = _figures(result.accuracy, result.interval, result.forward_passes, result.seconds)
        table.add_row(Text(result.attack + mark), *figures)
    return table


def _figures(accuracy: float, interval: Interval, passes: int, seconds: float) -> list[str]:
    return [
        f"{100 * accuracy:.2f}",
        f"{100 * interval.low:.2f} to {100 * interval.high:.2f}",
        f"{passes:,}",
        f"{seconds:.1f}",
    ]
