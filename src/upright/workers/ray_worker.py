"""What a worker of a cluster does with a task, on whichever node it is.

Run folders have to lie where all nodes see them. The driver shows that they do: it leaves a token
there, which every worker looks for before it begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from upright.files import open_temporary, remove_left_over
from upright.records import Record
from upright.workers.folder_claim import claimed
from upright.workers.task import Task, folders_of, perform

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
    """Perform what is left of a task, as the only worker in its folders."""
    if not (attempt.runs / attempt.token).exists():
        raise NotSharedError(
            f"the node {node} does not see what was written to {attempt.runs}: the folder of "
            "--runs has to lie on storage that all nodes share, under the same name"
        )
    with contextlib.ExitStack() as claims:
        for folder in folders_of(attempt.task, attempt.runs):
            held = claimed(folder, attempt.name, node=node, patience=attempt.patience)
            claims.enter_context(held)
        return perform(
            attempt.task,
            attempt.runs,
            device=torch.device(attempt.device),
            checkpoint_every=attempt.checkpoint_every,
            sharing=attempt.sharing,
        )


@contextlib.contextmanager
def token_in(runs: Path) -> Iterator[str]:
    """Leave a file that workers look for; gives its name. Those of killed drivers go.

    Its name and its lock are those of a file that is being written: so it can be told from one
    whose driver has died.
    """
    runs.mkdir(parents=True, exist_ok=True)
    remove_left_over(runs, "token")
    handle, token = open_temporary(runs / "token")
    try:
        yield token.name
    finally:
        token.unlink(missing_ok=True)
        os.close(handle)


def kept(*folders: Path) -> frozenset[tuple[Path, int]]:
    """What of a task would survive its worker: it changes whenever an attempt gets further."""
    forms = ("checkpoints/*.json", "evaluation-*.safetensors*")
    found = set()
    for file in (file for folder in folders for form in forms for file in folder.glob(form)):
        with contextlib.suppress(OSError):  # an old checkpoint goes when a new one is written
            found.add((file, file.stat().st_mtime_ns))
    return frozenset(found)
