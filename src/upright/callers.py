"""Warnings at the line of the user's code that called this package.

However deep inside the reason lies: how many calls lie between is not counted by hand.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar

__all__ = ["warn_caller", "warning_here"]

P = ParamSpec("P")
T = TypeVar("T")

_NOT_THE_CALLER = ("upright.", "torch.", "contextlib", "functools")


class _Line(NamedTuple):
    """A line of code, as ``warnings.warn_explicit`` takes it."""

    file: str
    number: int
    module: str
    registry: dict[Any, Any]
    """Of what was told there already."""


_line_elsewhere: ContextVar[_Line | None] = ContextVar("_line_elsewhere", default=None)
"""The line for which this thread works, where it is in another one."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package, be it by a module of torch."""
    file, number, module, registry = _calling_line()
    warnings.warn_explicit(message, category, file, number, module, registry)


def warning_here(work: Callable[P, T]) -> Callable[P, T]:
    """Let work that another thread does warn at the line that now calls this package.

    The frames of a thread end where it began, and lead to no line of a user's.
    """
    line = _calling_line()

    def work_there(*args: P.args, **options: P.kwargs) -> T:
        before = _line_elsewhere.set(line)
        try:
            return work(*args, **options)
        finally:
            _line_elsewhere.reset(before)

    return work_there


def _calling_line() -> _Line:
    if (elsewhere := _line_elsewhere.get()) is not None:
        return elsewhere
    frame = sys._getframe()
    while frame.f_back is not None and _module_of(frame).startswith(_NOT_THE_CALLER):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    return _Line(frame.f_code.co_filename, frame.f_lineno, _module_of(frame), registry)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
