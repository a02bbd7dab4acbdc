"""Ctrl-C in the program ``upright``: one line and status 130, from its first moment to its last.

The first seconds go into imports. An exception there is a traceback, or is lost in a library that
passes over it; so until a command runs, and once it is being put away, Ctrl-C ends the process on
the spot: no work is lost then. While a command runs, the first one is a ``KeyboardInterrupt``.
Python's own last moment, in which it would die without a word of what is long done, passes over it.

This module needs the standard library only, and is imported before everything else.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

__all__ = ["INTERRUPTED", "end_at_once", "raise_first"]

INTERRUPTED = 130
"""The status of a process that was interrupted, as shells count."""


def end_at_once() -> None:
    """From now on, let Ctrl-C end the process; not where it is ignored or somebody else's."""
    _let(_end)


def raise_first() -> None:
    """From now on, let the first Ctrl-C be a ``KeyboardInterrupt``, and the second end all."""
    _let(_raise)


def _let(handler: signal._HANDLER) -> None:
    ours = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end, _raise)
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, _end)
    raise KeyboardInterrupt


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Nothing is flushed and nobody is asked: the one who waits has waited long enough."""
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(2, b"upright: interrupted\n")
    os._exit(INTERRUPTED)


def _is_program() -> bool:
    """Whether this process is ``upright``, and neither a script of a user's nor a worker.

    While Python looks for what ``python -m upright`` is to run, the name of the program is ``-m``.
    """
    name = sys.argv[0] if sys.argv else ""
    return (name == "-m" or Path(name).stem == "upright") and (
        "--multiprocessing-fork" not in sys.orig_argv
    )


def _ignore() -> None:
    """Python takes its handlers away before it drops its modules: leave none to take away."""
    _let(signal.SIG_IGN)


if _is_program():
    end_at_once()
    atexit.register(_ignore)  # the first to be registered is the last to be called
