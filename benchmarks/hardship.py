"""A hard place to work in: a disk with little room, little memory, and processes that get killed.

As root on Linux the disk is a small ext4 file system on a loop device, or a small tmpfs, in a mount
namespace of its own, which goes with this process; elsewhere it is a plain folder, and a full disk
is a limit on the size of files. Memory is limited by a control group where one can be made, which
a ballast then fills up in part.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "PATIENCE_S",
    "Child",
    "Ended",
    "Limits",
    "MemoryGroup",
    "SmallDisk",
    "memory_group",
    "small_disk",
    "warm_up",
]

PATIENCE_S = 300.0
"""For a process, after which it counts as one that hangs."""
_NEW_MOUNT_NAMESPACE = 0x00020000
_GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.failcnt"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.events"),
)


@dataclass(frozen=True)
class SmallDisk:
    """A folder with little room."""

    folder: Path
    kind: str

    @property
    def limited(self) -> bool:
        return self.kind != "plain folder"

    def leave(self, free_bytes: int) -> None:
        """Fill the disk up, but for so many bytes."""
        if not self.limited:
            return
        filler = self.folder / "filler"
        filler.unlink(missing_ok=True)
        found = os.statvfs(self.folder)
        size = found.f_bavail * found.f_frsize - free_bytes
        if size > 0:
            with filler.open("wb") as file, contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, size)


@contextlib.contextmanager
def small_disk(beside: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Make a small disk in a folder; it is gone afterwards."""
    folder = beside / "disk"
    folder.mkdir()
    kind = "plain folder"
    if sys.platform == "linux" and os.geteuid() == 0:
        if not ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNT_NAMESPACE):
            _run("mount", "--make-rprivate", "/")
        image = beside / "disk.img"
        image.write_bytes(b"")
        os.truncate(image, megabytes << 20)
        size = f"size={megabytes}m"
        if _run("mkfs.ext4", "-q", "-m", "0", image) and _run("mount", "-o", "loop", image, folder):
            kind = "ext4 on a loop device"
        elif _run("mount", "-t", "tmpfs", "-o", size, "tmpfs", folder):
            kind = "tmpfs"
    try:
        yield SmallDisk(folder, kind)
    finally:
        if kind != "plain folder":
            _run("umount", folder)


def _run(*command: str | Path) -> bool:
    if shutil.which(str(command[0])) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class MemoryGroup:
    """A control group with a limit on memory; without a folder there is none."""

    folder: Path | None
    counter: str = ""

    def join(self) -> None:
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def times_at_limit(self) -> int | None:
        """How often an allocation met the limit, and something had to go."""
        if self.folder is None:
            return None
        words = (self.folder / self.counter).read_text().split()
        return int(words[words.index("max") + 1] if "max" in words else words[0])


@contextlib.contextmanager
def memory_group(megabytes: int, ballast_megabytes: int) -> Iterator[MemoryGroup]:
    """Limit the memory of those who join, of which a ballast has taken a part before."""
    group = _make_group(megabytes)
    ballast = os.fork() if group.folder is not None else 0
    if group.folder is not None and ballast == 0:
        group.join()
        with contextlib.suppress(OSError):  # the others are to be killed for want of memory
            Path("/proc/self/oom_score_adj").write_text("-1000")
        held = os.urandom(ballast_megabytes << 20)
        while len(held) >= 0:
            time.sleep(60)
    try:
        yield group
    finally:
        if group.folder is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(ballast, signal.SIGKILL)
            os.waitpid(ballast, 0)
            _remove(group.folder)


def _make_group(megabytes: int) -> MemoryGroup:
    for root, limit, counter in _GROUPS:
        folder = root / f"upright-soak-{os.getpid()}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            if (folder / limit).exists():
                (folder / limit).write_text(str(megabytes << 20))
                return MemoryGroup(folder, counter)
            folder.rmdir()
    return MemoryGroup(None)


def _remove(group: Path) -> None:
    for _ in range(50):  # it takes a moment until the last process has left
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


@dataclass(frozen=True)
class Limits:
    """What a process may use beyond what it begins with; None for no limit."""

    more_memory: int | None = None
    """Address space, in bytes."""
    file_size: int | None = None
    """In bytes."""

    def set(self) -> None:
        if self.more_memory is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + self.more_memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if self.file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_size, self.file_size))


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or less than 0 for a signal; and what it said."""

    code: int
    said: str
    seconds: float


class Child:
    """``upright`` as a process: a fork of this one, or fresh, which takes seconds to begin."""

    def __init__(
        self,
        command: Callable[[Sequence[str]], int],
        arguments: Sequence[str],
        *,
        output: Path,
        group: MemoryGroup,
        limits: Limits | None = None,
        fresh: bool = False,
    ) -> None:
        self._output, self._began = output, time.monotonic()
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            group.join()
            where = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(where, 1)
            os.dup2(where, 2)
            if fresh:
                os.execv(sys.executable, [sys.executable, "-m", "upright", *arguments])
            (limits or Limits()).set()
            code = command(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)  # nothing of the parent's is to be cleaned up here

    def wait(self, patience_s: float) -> Ended | None:
        """Wait for the end; None, and the process is killed, where it takes too long."""
        while time.monotonic() < self._began + patience_s:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                seconds = time.monotonic() - self._began
                said = self._output.read_text(errors="replace") if self._output.exists() else ""
                return Ended(os.waitstatus_to_exitcode(status), said, seconds)
            time.sleep(0.002)
        self.send(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)  # not yet waited for, so that the number is still its own


def warm_up(
    command: Callable[[Sequence[str]], int], calls: Sequence[Sequence[str]], desk: Path
) -> None:
    """Import all that calls of a command import, so that their forks begin at once."""

    def noted(arguments: Sequence[str]) -> int:
        code = command(arguments)
        (desk / "modules").write_text("\n".join(sys.modules))
        return code

    for arguments in calls:
        # In a fork: what the command itself leaves, such as threads, would not survive the next.
        output, group = desk / "child.out", MemoryGroup(None)
        Child(noted, arguments, output=output, group=group).wait(PATIENCE_S)
        for name in (desk / "modules").read_text().split():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()  # or a collection in a fork would copy all that it has of this process
