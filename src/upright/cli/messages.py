"""What commands say on stderr: always one line."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import torch

from upright.checks import SuspiciousInput
from upright.objective import grammar
from upright.ranks import Ranks, joined_ranks
from upright.terminal import printable

__all__ = ["flush", "is_watched", "one_line", "one_line_warnings", "one_voice", "say", "say_error"]


def say(text: str) -> None:
    """Write a line to stderr; what a file may have brought into it cannot steer the terminal.

    Where nobody listens any more, nothing is said, and nothing lost.
    """
    end = f"\n{grammar()}"  # of the one message that is easier to read in its own lines
    line = printable(text.removesuffix(end)) + (end if text.endswith(end) else "")
    if sys.stderr is not None:  # else Python would print to stdout
        with contextlib.suppress(OSError):
            print(f"upright: {line}", file=sys.stderr)


def is_watched() -> bool:
    """Whether somebody looks on in a terminal; where stderr is closed, nobody does."""
    return sys.stderr is not None and sys.stderr.isatty()


def flush() -> None:
    """Print what waits to be printed; what cannot be is given up."""
    try:
        if sys.stdout is not None:  # as where it was closed from the start
            sys.stdout.flush()
    except OSError:
        _print_no_more()


def _print_no_more() -> None:
    """Or Python tries once more when it ends, and complains in lines of its own."""
    with contextlib.suppress(OSError, ValueError):  # no stream of the system's, as in a test
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def say_error(error: Exception, about: str = "") -> None:
    """Say in a line what went wrong, and with what; nothing more is printed for who has left.

    A user's model may raise anything; what is not meant for a person is named by its kind.
    """
    if isinstance(error, BrokenPipeError):
        _print_no_more()
    meant = isinstance(error, ValueError | OSError | MemoryError | RuntimeError)
    kind = "" if meant else f"{type(error).__name__}: "
    say(f"error: {about and f'{about}: '}{kind}{one_line(error)}")


def one_line(error: BaseException) -> str:
    """Give the message of an error in one line, the way people would put it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if str(error).endswith(f"\n{grammar()}"):
        return str(error)
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}" if isinstance(error, RuntimeError) else text


@contextlib.contextmanager
def one_voice(
    device: torch.device, *, patience: timedelta = timedelta(minutes=30)
) -> Iterator[Ranks]:
    """Join the processes of ``torchrun``, see ``joined_ranks``, and let rank 0 alone speak.

    The error that ends another rank is still heard.
    """
    with joined_ranks(device, patience=patience) as ranks:
        if ranks.leads:
            yield ranks
            return
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            yield ranks


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Show warnings without the line of source that Python adds to them."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", SuspiciousInput)
        warnings.showwarning = _show
        yield


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, file, line
    say(f"warning: {' '.join(str(message).split())}")
