"""Runs on a Ray cluster: each is a Ray task with a part of a GPU, begun again when it is lost.

Workers train and evaluate, in folders that all nodes share; only the driver, which is the process
that calls ``run``, hands records over. Whatever dies costs the steps since the last checkpoint:

- a worker or a node: the driver submits the task again, and it continues where it was;
- the driver: its cluster stops its workers, and the next driver begins with what is not recorded.

Ray would retry tasks by itself, so many times each. Here a task may be lost any number of times
as long as it gets further in between, and is given up when it does not.

Tasks that need the same run, as those of a LocNet and a classifier together may, are submitted one
after the other: the first trains it.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.live import Live

from upright.heap import keep_freed
from upright.records import Record
from upright.terminal import plain_console
from upright.workers.engine import Failure, OnRecord
from upright.workers.folder_claim import newest_step, read_claim
from upright.workers.progress import Doing, progress_table
from upright.workers.ray_cluster import connected, import_ray
from upright.workers.ray_worker import Attempt, NotSharedError, kept, token_in, work_on
from upright.workers.task import Task, folders_of, run_folder

__all__ = ["RayEngine", "ray_engine"]

_LOOK_EVERY = 2.0
"""Seconds between two looks at the run folders, for the table."""
_STOP_WITHIN = 20.0
"""Seconds that workers have to write a checkpoint after an interrupt."""


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Runs on the cluster to which this process is connected; ``ray_engine`` makes one."""

    runs: Path
    """The folder that has a folder for each run, on storage that all nodes share."""
    device: torch.device
    """Of the workers, ``cuda`` or ``cpu``."""
    gpus: float = 0.25
    """The part of a GPU that a run is given; none where the device is a CPU."""
    cpus: float = 1
    checkpoint_every: int = 1000
    tries: int = 3
    """A task is given up when so many attempts in a row have kept nothing new."""
    patience: float = 120
    """Seconds that an attempt waits for a worker that is still at work on the same run."""
    progress: bool = False
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        if self.device.type not in ("cuda", "cpu"):
            raise ValueError(f"workers have no device {self.device}; choose cuda or cpu")
        if not 0 < self.gpus <= 1:
            raise ValueError(f"a run cannot have {self.gpus} GPUs; choose more than 0, up to 1")

    @property
    def sharing(self) -> int:
        """How many runs may share a GPU; a run on a CPU has its cores to itself."""
        return math.floor(1 / self.gpus + 1e-9) if self.device.type == "cuda" else 1

    def run(self, tasks: Sequence[Task], on_record: OnRecord) -> tuple[Failure, ...]:
        """Perform all tasks; see ``Engine``."""
        runs = self.runs.resolve()
        with token_in(runs) as token:
            return _Sweep(self, runs, token, tasks, on_record).run()


@contextlib.contextmanager
def ray_engine(
    *, runs: Path, address: str | None = None, device: str | None = None, **options: Any
) -> Iterator[RayEngine]:
    """Connect to a cluster, and leave it in the end.

    Args:
        runs: the folder of the runs, see ``RayEngine``.
        address: of the cluster, such as ``10.0.0.1:6379``; by default what ``RAY_ADDRESS`` says,
            and without it a cluster of this machine alone, for this call.
        device: ``cuda`` or ``cpu``; by default ``cuda`` where the cluster has a GPU.
        options: the other fields of ``RayEngine``.
    """
    with connected(address) as ray:
        found = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
        yield RayEngine(runs=runs, device=torch.device(device or found), **options)


def _on_this_node(attempt: Attempt) -> tuple[Record, ...]:
    """Work on an attempt; a worker of Ray calls this."""
    keep_freed()
    node = import_ray().get_runtime_context().get_node_id()
    return work_on(attempt, node=f"{socket.gethostname()}/{node[:8]}")


@dataclass(eq=False)
class _Job:
    """A task that a worker has, or that waits for one."""

    task: Task
    folder: Path
    folders: tuple[Path, ...]
    """All that it works in, its own among them."""
    attempt: str = ""
    attempts: int = 0
    in_vain: int = 0
    """Attempts in a row that kept nothing new."""
    kept: frozenset[tuple[Path, int]] = field(default_factory=frozenset)


class _Sweep:
    """All tasks of one call of ``run``, until each has its records or has failed."""

    def __init__(
        self, engine: RayEngine, runs: Path, token: str, tasks: Sequence[Task], on_record: OnRecord
    ) -> None:
        self._ray, self._engine, self._runs, self._token = import_ray(), engine, runs, token
        self._on_record = on_record
        self._remote = self._ray.remote(
            num_cpus=engine.cpus,
            num_gpus=engine.gpus if engine.device.type == "cuda" else 0,
            max_retries=0,
        )(_on_this_node)
        self._jobs = [_Job(task, run_folder(task, runs), folders_of(task, runs)) for task in tasks]
        self._held_back = list(self._jobs)
        self._pending: dict[Any, _Job] = {}
        self._failures: dict[_Job, str] = {}

    def run(self) -> tuple[Failure, ...]:
        with self._table() as live:
            try:
                self._submit_what_is_free()
                while self._pending:
                    if live is not None:
                        live.update(self._progress(), refresh=True)
                    done, _ = self._ray.wait(list(self._pending), timeout=_LOOK_EVERY)
                    for ref in done:
                        self._collect(ref, self._pending.pop(ref))
                    self._submit_what_is_free()
            finally:
                self._stop()
        reasons = self._failures
        return tuple(Failure(job.task, reasons[job]) for job in self._jobs if job in reasons)

    def _table(self) -> contextlib.AbstractContextManager[Live | None]:
        if not self._engine.progress:
            return contextlib.nullcontext()
        return Live(console=plain_console(stderr=True), auto_refresh=False, transient=True)

    def _submit_what_is_free(self) -> None:
        """Submit the tasks in whose folders no other task is at work."""
        busy = {folder for job in self._pending.values() for folder in job.folders}
        for job in list(self._held_back):
            if busy.isdisjoint(job.folders):
                self._held_back.remove(job)
                busy.update(job.folders)
                self._submit(job)

    def _submit(self, job: _Job) -> None:
        job.attempts += 1
        job.attempt = f"{self._token}-{job.task.plan.hash}-{job.attempts}"
        job.kept = kept(*job.folders)
        attempt = Attempt(
            task=job.task,
            name=job.attempt,
            runs=self._runs,
            token=self._token,
            device=self._engine.device.type,
            sharing=self._engine.sharing,
            checkpoint_every=self._engine.checkpoint_every,
            patience=self._engine.patience,
        )
        self._pending[self._remote.remote(attempt)] = job

    def _collect(self, ref: Any, job: _Job) -> None:
        try:
            records = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, NotSharedError):
                raise error.cause from None
            if isinstance(error.cause, ValueError):  # it is the recipe's fault, and would come back
                self._failures[job] = str(error.cause)
            else:
                self._again(job, f"{type(error.cause).__name__}: {error.cause}")
        except self._ray.exceptions.RayError as error:
            self._again(job, str(error).partition("\n")[0].partition(". ")[0])
        else:
            for record in records:
                self._on_record(record)

    def _again(self, job: _Job, reason: str) -> None:
        """Begin a task once more, unless that has been in vain for too long."""
        job.in_vain = job.in_vain + 1 if kept(*job.folders) == job.kept else 0
        if job.in_vain >= self._engine.tries:
            self._failures[job] = f"given up after {job.attempts} attempts: {reason}"
            return
        step = _step(job)
        self._engine.say(f"lost: {job.task}: {reason}; it continues from step {step}")
        self._submit(job)

    def _stop(self) -> None:
        """After an interrupt or an error, let workers write their last checkpoint."""
        if self._pending:
            for ref in self._pending:
                self._ray.cancel(ref)
            refs = list(self._pending)
            self._ray.wait(refs, num_returns=len(refs), timeout=_STOP_WITHIN)

    def _progress(self) -> RenderableType:
        doing = [each for job in self._pending.values() if (each := _doing(job)) is not None]
        ahead = len(self._pending) + len(self._held_back)
        counts = {
            "done": len(self._jobs) - ahead - len(self._failures),
            "running": len(doing),
            "waiting": ahead - len(doing),
            "failed": len(self._failures),
        }
        return progress_table(doing, counts)


def _step(job: _Job) -> int:
    """How far a task is: the step of its newest checkpoint, of two runs both together."""
    return sum(newest_step(folder) for folder in job.folders)


def _doing(job: _Job) -> Doing | None:
    """Who is at work on a task; a claim of another attempt is of one that has ended."""
    claim = read_claim(job.folder)
    if claim is None or claim.attempt != job.attempt:
        return None
    return Doing(
        run=str(job.task),
        step=_step(job),
        steps=job.task.plan.total_steps,
        node=claim.node,
        attempt=job.attempts,
    )
