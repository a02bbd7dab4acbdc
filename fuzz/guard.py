"""What a reader must not do with hostile input, and a guard that sees it.

Input is accepted, or refused with a ``ValueError`` of one line (the notation's grammar aside) or an
``OSError`` that names its file. Everything else is a crash: another exception, a process, a
connection, a change to a file outside the folder that the reader was given, more than a second or
so of work, or memory out of proportion.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upright.families import UnknownFamilyError
from upright.objective import grammar
from upright.registry import UnknownNameError

__all__ = ["Escape", "Hang", "Target", "attempt", "warm_up"]

SECONDS = 20
"""For one input; generous, since machines are busy."""
MORE_BYTES = 1 << 30
"""Of address space for one input."""

_FORBIDDEN = (
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "socket.getaddrinfo"),
)
_CHANGES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Target:
    """A reader of the project, as a function of bytes and of an empty folder to put them into."""

    name: str
    read: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]]
    """Input that is right, and input that is wrong in known ways."""


class Escape(BaseException):
    """The reader reached for something outside its folder."""


class Hang(BaseException):
    """The reader took too long."""


_OURS = (ValueError, UnknownFamilyError, UnknownNameError)


def warm_up(target: Target, folder: Path) -> None:
    """Read input that is right, unguarded: some libraries are imported late, and make files."""
    folder.mkdir(parents=True)
    with contextlib.suppress(ValueError, OSError):
        target.read(target.seeds()[0], folder)


def attempt(target: Target, data: bytes, folder: Path, *, alarm: bool = True) -> bool:
    """Hand input to a reader; whether it was accepted. Raises what was not meant to be raised.

    Without ``alarm``, somebody else sees to it that the reader does not take too long.
    """
    box = folder / "box"
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    try:
        with _guarded(box), _alarm() if alarm else contextlib.nullcontext():
            target.read(data, box)
    except ValueError as error:
        # Other subclasses come from other libraries, and do not say what to do.
        if type(error) not in _OURS or not _is_one_line(str(error)):
            raise
        return False
    except OSError as error:
        if error.filename is None:
            raise
        return False
    return True


def _is_one_line(message: str) -> bool:
    return bool(message) and "\n" not in message.removesuffix(grammar()).rstrip("\n")


@contextlib.contextmanager
def _guarded(box: Path) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_BYTES, hard))
    _allowed.append(os.path.realpath(box))
    try:
        yield
    finally:
        _allowed.pop()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _raise_hang)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _raise_hang(_number: int, _frame: object) -> None:
    raise Hang(f"no answer after {SECONDS} s")


_allowed: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _allowed:
        return
    if event in _FORBIDDEN:
        raise Escape(f"{event} {arguments}")
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITES and path != os.devnull:
            _check_inside(event, path)
    elif event in _CHANGES:
        # A path below an open folder is judged by what opened that folder.
        relative = any(isinstance(part, int) and part > 2 for part in arguments[1:])
        for path in arguments[: 2 if event in ("os.rename", "os.link", "shutil.move") else 1]:
            if not relative:
                _check_inside(event, path)


def _check_inside(event: str, path: object) -> None:
    if isinstance(path, str | bytes | os.PathLike):
        real = os.path.realpath(Path(os.fsdecode(path)).absolute().parent)
        if os.path.commonpath([real, _allowed[-1]]) != _allowed[-1]:
            raise Escape(f"{event} {path!r}")


sys.addaudithook(_watch)
sys.dont_write_bytecode = True  # or an import would look like an escape
