"""What commands say on stderr: always one line, and below it the notes of an error."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import torch

from upright.checks import SuspiciousInput
from upright.ranks import Ranks, joined_ranks
from upright.terminal import printable

__all__ = [
    "FAILED",
    "UNREAD",
    "flush",
    "is_watched",
    "one_line",
    "one_line_warnings",
    "one_voice",
    "say",
    "say_error",
]

FAILED = 2
"""The status of a process after an error."""
UNREAD = 141
"""The status of a process whose reader has left, as shells count."""
_STDOUT = 1
"""The descriptor, wherever Python's ``sys.stdout`` leads for now."""


def say(text: str) -> None:
    """Write a line to stderr; what a file may have brought into it cannot steer the terminal.

    Where nobody listens any more, nothing is said, and nothing lost.
    """
    _write(f"upright: {printable(text)}")


def _write(line: str) -> None:
    if sys.stderr is not None:  # else Python would print to stdout
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr)


def is_watched() -> bool:
    """Whether somebody looks on in a terminal; where stderr is closed, nobody does."""
    return sys.stderr is not None and sys.stderr.isatty()


def flush(code: int) -> int:
    """Print what waits to be printed; give the exit code, which tells of the first failure alone.

    What cannot be printed is given up.
    """
    try:
        if sys.stdout is not None:  # as where it was closed from the start
            sys.stdout.flush()
    except OSError as error:
        code = code or say_error(error)
        _print_no_more()
    return code


def _print_no_more() -> None:
    """Or Python tries once more when it ends, and complains in lines of its own."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)


def _reader_has_left() -> bool:
    """Whether nobody reads this process's standard output any more; a broken end tells unasked."""
    if sys.platform == "win32" or sys.__stdout__ is None:  # then it is another file's, if any
        return False
    end = select.poll()
    end.register(_STDOUT, 0)
    return bool(end.poll(0))


def say_error(error: Exception, about: str = "") -> int:
    """Say in a line what went wrong, and with what, then the error's notes; give the exit code.

    Whoever reads standard output and has enough, as ``head`` does, is told nothing: the code is
    that of all programs that end so. A user's model may raise anything; what is not meant for a
    person is named by its kind.
    """
    if isinstance(error, BrokenPipeError) and _reader_has_left():
        _print_no_more()
        return UNREAD
    meant = isinstance(error, ValueError | OSError | MemoryError | RuntimeError)
    kind = "" if meant else f"{type(error).__name__}: "
    say(f"error: {about and f'{about}: '}{kind}{one_line(error)}")
    for note in getattr(error, "__notes__", ()):
        for line in str(note).splitlines():
            _write(printable(line))
    return FAILED


def one_line(error: BaseException) -> str:
    """Give the message of an error in one line, the way people would put it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
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
