"""Files that are written whole or not at all, names for them, locks that die with their process."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from upright.callers import warn_caller

if sys.platform != "win32":
    import fcntl

__all__ = [
    "alone_in",
    "in_turn",
    "lock",
    "open_temporary",
    "plain_name",
    "remove_left_over",
    "sync_folder",
    "write_whole",
]

_SUFFIX = ".part"
_LONGEST_BEGINNING = 200


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by new content, so that a reader finds the old or the new, never a part.

    What a killed process left half written of this file is removed. An error names the file. A
    new file has the permissions that the umask leaves, one that was there keeps its own. A link is
    written through to its target; a device or a pipe, which cannot be replaced, is written to.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_bytes(content)
        else:
            _replace(_behind_links(path), content)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _behind_links(path: Path) -> Path:
    """Where a link leads, also where nothing is there yet."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left_over(path.parent, path.name)
    handle, temporary = open_temporary(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def plain_name(text: str, *, longest: int = 100) -> str:
    """Make a name for files of any text: small letters, digits, dots and dashes; never a path.

    A text that is too long loses its beginning, since paths and methods differ at their end.

    >>> plain_name("KL(rob, Wo-10; λ=0.5)")
    'kl-rob-wo-10-lambda-0.5'
    """
    spelled = text.lower().replace("*", "-star").replace("λ", "lambda").replace("×", "x")
    words = re.findall(r"[a-z0-9][a-z0-9.]*", spelled)
    return "-".join(words)[-longest:].strip("-.")


def sync_folder(folder: Path) -> None:
    """See to it that new names in a folder outlast a crash of the machine, where that can be."""
    with contextlib.suppress(OSError):  # not all platforms open folders, nor do all disks sync them
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_temporary(path: Path) -> tuple[int, Path]:
    """Make a file beside this one, locked while its writer lives, with a new file's permissions."""
    while True:
        name = f".{_beginning(path.name)}-{secrets.token_hex(4)}{_SUFFIX}"
        # 0600, as `tempfile` has it, would be for its owner alone, whatever the umask says.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(path.parent / name, flags, 0o666)
        # Another process may have taken it for left over before it was locked.
        if not lock(handle) or os.fstat(handle).st_nlink:
            return handle, path.parent / name
        os.close(handle)


def _beginning(name: str) -> str:
    """As much of a name as leaves room for what is added to it: most disks take 255 bytes."""
    return os.fsdecode(os.fsencode(name)[:_LONGEST_BEGINNING])


def remove_left_over(folder: Path, name: str | None = None, *, and_longer: bool = False) -> None:
    """Remove what killed processes left half written: of one file, or of all in a folder.

    With ``and_longer``, also of files whose names only begin so.
    """
    of = "*" if name is None else glob.escape(_beginning(name)) + "*" * and_longer
    for left in folder.glob(f".{of}-????????{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another process writes or has removed it
            handle = os.open(left, os.O_RDWR)
            try:
                if lock(handle, wait=False):
                    left.unlink()
            finally:
                os.close(handle)


def lock(handle: int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file until it is closed; False where the platform or the disk has no locks.

    Without ``wait``, a lock that another has is a ``BlockingIOError``.
    """
    if sys.platform == "win32":
        return False
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep every other process that asks for it out of a folder, made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock_or_say_why_not(handle, folder)
        yield
    finally:
        os.close(handle)  # which unlocks it, too


@contextlib.contextmanager
def in_turn(path: Path, *, busy: str) -> Iterator[bool]:
    """Wait until no other process has this lock: a file, which goes with the last that holds it.

    Gives whether there is a lock at all, see ``lock``; ``busy`` is the warning to who has to wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, locked = _held(path, busy)
    try:
        yield locked
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)  # which unlocks it, too


def _held(path: Path, busy: str) -> tuple[int, bool]:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked = lock(handle, wait=False)
        except BlockingIOError:
            warn_caller(busy, RuntimeWarning)
            locked = lock(handle)
        # The one who had it has removed it by now, and a third may hold the next of its name.
        if not locked or os.fstat(handle).st_nlink:
            return handle, locked
        os.close(handle)


def _lock_or_say_why_not(handle: int, folder: Path) -> None:
    try:
        locked = lock(handle, wait=False)
    except BlockingIOError as error:
        raise ValueError(
            f"another process is at work in {folder}; wait until it ends, or choose another folder"
        ) from error
    if not locked:
        message = (
            f"{folder} cannot be locked: see to it that only one process at a time writes there"
        )
        warn_caller(message, RuntimeWarning)
