"""Who makes the runs: an engine takes tasks and hands back records, one by one as they are made.

``LocalEngine`` uses this machine, ``RayEngine`` a cluster. Another engine may call
``task.perform`` for each task wherever it likes, since tasks and records can be pickled and a task
that is begun again continues where it was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from upright.records import Record
from upright.train import Recipe, train_together
from upright.workers.task import Task, folder_of, is_trained, measure_task

__all__ = ["Engine", "Failure", "LocalEngine", "OnRecord", "runs_at_once"]

OnRecord = Callable[[Record], None]

# What a run may do wrong without harm to others: diverge, find no disk, need too much memory.
_FAILURES = (ValueError, OSError, RuntimeError)


@dataclass(frozen=True)
class Failure:
    """A task that gave no record, and why."""

    task: Task
    reason: str


class Engine(Protocol):
    """Performs tasks: trains their runs, evaluates them, and gives the records."""

    @property
    def device(self) -> torch.device:
        """Where runs are trained and evaluated."""

    def run(self, tasks: Sequence[Task], on_record: OnRecord) -> tuple[Failure, ...]:
        """Perform all tasks; hand each record over, in this process, as soon as it is there.

        A task that fails does not stop the others. An interrupt stops all, and is raised again.
        """


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Runs on one device of this machine, several at once where it has room."""

    runs: Path
    """The folder that has a folder for each run."""
    device: torch.device
    together: int = 1
    """How many runs train side by side."""
    checkpoint_every: int = 1000
    progress: bool = False

    def run(self, tasks: Sequence[Task], on_record: OnRecord) -> tuple[Failure, ...]:
        failures: list[Failure] = []
        left, trained, failed = list(tasks), set[Recipe](), dict[Recipe, str]()
        for group in _groups(tasks, self.together):
            failed |= self._train(group)
            trained.update(group)
            for task in [each for each in left if trained.issuperset(each.plan.runs)]:
                left.remove(task)
                reasons = [failed[run] for run in task.plan.runs if run in failed]
                failures += (
                    [Failure(task, reasons[0])] if reasons else self._measure(task, on_record)
                )
        return tuple(failures)

    def _train(self, group: Sequence[Recipe]) -> dict[Recipe, str]:
        """Train what is not trained yet, and say why what failed did.

        Where several fail together, each shows by itself why.
        """
        try:
            todo = [recipe for recipe in group if not is_trained(recipe, self.runs)]
            if not todo:
                return {}
            runs = train_together(
                {folder_of(recipe, self.runs): recipe for recipe in todo},
                resume=True,
                device=self.device,
                checkpoint_every=self.checkpoint_every,
                progress=self.progress,
            )
        except _FAILURES as error:
            reason = str(error)  # alone: the error itself holds all memory of what failed
        else:
            if not all(run.finished for run in runs):
                raise KeyboardInterrupt
            return {}
        if len(group) == 1:
            return {group[0]: reason}
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return {run: reason for each in group for run, reason in self._train([each]).items()}

    def _measure(self, task: Task, on_record: OnRecord) -> list[Failure]:
        try:
            for record in measure_task(task, self.runs, device=self.device, progress=self.progress):
                on_record(record)
        except _FAILURES as error:
            return [Failure(task, str(error))]
        return []


def runs_at_once(device: torch.device) -> int:
    """How many runs may train side by side: one on a CPU, up to four on a GPU.

    Each is given 8 GiB. A guess that is wrong costs little: where memory runs out, the runs of a
    group continue one by one.
    """
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(4, free // (8 * 2**30)))


def _groups(tasks: Sequence[Task], size: int) -> Iterator[list[Recipe]]:
    """Cut the runs of tasks, each once, into groups that can train together: on the same data.

    The first that is left, with the next of its kind: who comes first need not wait for others.
    """
    left = list(dict.fromkeys(run for task in tasks for run in task.plan.runs))
    while left:
        alike = [run for run in left if run.training_data == left[0].training_data][:size]
        yield alike
        left = [run for run in left if run not in alike]
