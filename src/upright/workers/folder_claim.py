"""One worker at a time performs a task: it holds a lock in the run's folder, and says who it is.

A cluster may take a worker for dead that is only out of its reach, and begin the task again
elsewhere. The new worker then waits for the lock: until the old one is dead, which releases it, or
has finished, so that there is nothing left to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from upright.files import lock

__all__ = ["Claim", "claimed", "newest_step", "read_claim"]

_FILE = ".claim"


@dataclass(frozen=True)
class Claim:
    """Who is at work in a run's folder, or was the last."""

    attempt: str
    """The name of this attempt: no two have the same."""
    node: str
    process: int
    step: int
    """Of the checkpoint that it found."""


@contextlib.contextmanager
def claimed(folder: Path, attempt: str, *, node: str, patience: float) -> Iterator[None]:
    """Hold a folder, made where it is missing, after waiting for it up to ``patience`` seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _wait(handle, folder, time.monotonic() + patience)
        claim = Claim(attempt, node, os.getpid(), newest_step(folder))
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(asdict(claim)).encode())
        yield
    finally:
        os.close(handle)  # which unlocks it, too


def _wait(handle: int, folder: Path, end: float) -> None:
    while True:
        try:
            if not lock(handle, wait=False):
                raise RuntimeError(
                    f"{folder} cannot be locked, and two workers could train in it at once; "
                    "choose a folder on a disk that has locks"
                )
        except BlockingIOError as error:
            if time.monotonic() > end:
                other = read_claim(folder)
                where = f"process {other.process} on {other.node}" if other else "another process"
                raise RuntimeError(f"{where} is at work in {folder}") from error
            time.sleep(0.1)
        else:
            return


def read_claim(folder: Path) -> Claim | None:
    """Say who was the last to hold a folder; None where nobody was, or is just about to."""
    try:
        return Claim(**json.loads((folder / _FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def newest_step(folder: Path) -> int:
    """The step of a run's newest checkpoint, by its file's name; 0 where there is none."""
    files = (folder / "checkpoints").glob("*.json")
    return max((int(file.stem) for file in files if file.stem.isdecimal()), default=0)
