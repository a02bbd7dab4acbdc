"""What a worker of a cluster does with a task, on whichever node it is.

Run folders have to lie where all nodes see them. The driver shows that they do: it leaves a token
there, which every worker looks for before it begins.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from upright.files import write_whole
from upright.records import Record
from upright.reproduce.claim import claimed
from upright.reproduce.work import Task, perform, run_folder

__all__ = ["Attempt", "NotSharedError", "kept", "token_in", "work_on"]


class NotSharedError(ValueError):
    """A node does not see the folder of the runs."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A task, and all that a worker has to know to perform it."""

    task: Task
    name: str
    """No two attempts have the same."""
    runs: Path
    token: str
    """The name of a file in ``runs``."""
    device: str
    checkpoint_every: int
    patience: float
    """Seconds to wait for another worker that is still at work in the run's folder."""
    sharing: int = 1
    """How many workers may share the device."""


def work_on(attempt: Attempt, *, node: str) -> tuple[Record, ...]:
    """Perform what is left of a task, as the only worker in its folder."""
    if not (attempt.runs / attempt.token).exists():
        raise NotSharedError(
            f"the node {node} does not see what was written to {attempt.runs}: the folder of "
            "--runs has to lie on storage that all nodes share, under the same name"
        )
    folder = run_folder(attempt.task, attempt.runs)
    with claimed(folder, attempt.name, node=node, patience=attempt.patience):
        return perform(
            attempt.task,
            attempt.runs,
            device=torch.device(attempt.device),
            checkpoint_every=attempt.checkpoint_every,
            sharing=attempt.sharing,
        )


@contextlib.contextmanager
def token_in(runs: Path) -> Iterator[str]:
    """Leave a file that workers look for; gives its name."""
    token = f".token-{secrets.token_hex(8)}"
    write_whole(runs / token, b"")
    try:
        yield token
    finally:
        (runs / token).unlink(missing_ok=True)


def kept(folder: Path) -> frozenset[tuple[str, int]]:
    """What of a run would survive its worker: it changes whenever an attempt gets further."""
    files = [*folder.glob("checkpoints/*.json"), *folder.glob("evaluation-*.safetensors")]
    found = set()
    for file in files:
        with contextlib.suppress(OSError):  # an old checkpoint goes when a new one is written
            found.add((file.name, file.stat().st_mtime_ns))
    return frozenset(found)
