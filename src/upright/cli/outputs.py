"""What a command hands over in the end: each part is tried, whatever became of the others.

What took hours to measure does not hang on one full disk or closed pipe: it is printed first, then
every file is written that can be, and each failure is told in a line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TextIO

from upright.cli.messages import FAILED, say_error

__all__ = ["Output", "deliver", "printing", "written_to"]


@dataclass(frozen=True)
class Output:
    """A part of what a command gives, and how it gets where it is wanted."""

    name: str
    """As a person would call it: the option and its file."""
    hand_over: Callable[[], object]


def printing(show: Callable[[], object]) -> Output:
    """What is printed is an output, too: nobody may be listening any more."""

    def print_all() -> None:
        show()
        if sys.stdout is not None:  # as where it was closed from the start
            sys.stdout.flush()

    return Output("standard output", print_all)


def written_to(stream: TextIO | None, content: Callable[[], str]) -> Output:
    """Text for whoever reads this stream; that it was closed from the start is a failure."""

    def write() -> None:
        if stream is None:
            raise ValueError("it is closed; leave - out, or let something read it")
        print(content(), end="", file=stream, flush=True)

    return Output("standard output", write)


def deliver(outputs: Iterable[Output]) -> None:
    """Hand over all outputs, in their order; where some fail, end with their status after the last.

    An error counts before a reader who has left.
    """
    codes = {code for output in outputs if (code := _hand_over(output))}
    if codes:
        raise SystemExit(FAILED if FAILED in codes else codes.pop())


def _hand_over(output: Output) -> int:
    """Give the exit code of this part alone."""
    try:
        output.hand_over()
    except Exception as error:
        return say_error(error, about=output.name)
    return 0
