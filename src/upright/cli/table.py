"""Results as tables for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from upright.evaluation import ORACLE, Evaluation, Interval
from upright.space import TransformSpace

__all__ = ["evaluation_table"]


def evaluation_table(evaluation: Evaluation, *, title: str, space: TransformSpace) -> Table:
    """Lay out an evaluation, a line for each attack; accuracies in percent.

    An oracle's is marked in its title, its caption and every line.
    """
    first, mark, note = ("ORACLE ", " (oracle)", f"\n{ORACLE}") if evaluation.oracle else [""] * 3
    table = Table(title=Text(first + title), caption=Text(space.in_words() + note))
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
