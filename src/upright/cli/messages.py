"""What commands say on stderr: always one line."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO

from upright.checks import SuspiciousInput
from upright.objective import GRAMMAR

__all__ = ["one_line", "one_line_warnings", "say"]


def say(text: str) -> None:
    """Write a line to stderr; what a file may have brought into it cannot steer the terminal."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    print(f"upright: {shown}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """Give the message of an error in one line, the way people would put it."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if str(error).endswith(GRAMMAR):
        return str(error)  # the one message that is easier to read in its own lines
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}" if isinstance(error, RuntimeError) else text


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
