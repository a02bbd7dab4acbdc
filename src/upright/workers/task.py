"""A run to make, and how it is made: train, evaluate, and give the records.

Everything here can be done again after it was stopped at any point: training continues from the
run's last checkpoint, an evaluation from its state, and what is done is not done twice. A run's
folder has the name of its recipe's hash, so that whoever takes a task up finds what was done of it.
A task of two networks together has two runs, which other tasks may need too, and a folder of its
own for the state of its evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from upright.evaluation import Question
from upright.evaluation.question import named_attacks
from upright.measure import FinishedRun, measure_run
from upright.measure.run import evaluation_precision
from upright.records import Record
from upright.train import Plan, Recipe, load_network, train

__all__ = [
    "Task",
    "folder_of",
    "folders_of",
    "is_trained",
    "measure_task",
    "perform",
    "run_folder",
]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A recipe to follow, or two, and the attacks under which to evaluate what it gives."""

    plan: Plan
    attacks: tuple[str, ...] = ("grid-775",)
    test_images: int | None = None
    """The first so many test images only; a cell of the paper takes all of them."""
    question: Question = field(default_factory=Question, hash=False)
    """What is asked beside the attacks: by default what the paper asks."""

    @property
    def asked(self) -> Question:
        """All that is asked."""
        return replace(
            self.question,
            attacks=named_attacks(self.attacks),
            limit=self.test_images,
            precision=evaluation_precision(self.plan),
        )

    def __str__(self) -> str:
        recipe = self.plan.main
        size = f", batch {recipe.batch}" if recipe.batch != Recipe.batch else ""
        network = f", {recipe.model}" if recipe.model != Recipe.model else ""
        part = ", a tenth held out" if recipe.held_out else ""
        return f"{self.plan.method} on {recipe.data}{network}{size}{part}, seed {recipe.seed}"


def perform(
    task: Task,
    runs: Path,
    *,
    device: torch.device,
    checkpoint_every: int = 1000,
    progress: bool = False,
    sharing: int = 1,
) -> tuple[Record, ...]:
    """Train and evaluate, or what is left to do of it, below the folder ``runs``.

    ``sharing`` says how many processes share the device, which their records tell.
    Gives a record for each group of attacks that can share an evaluation. Raises
    ``KeyboardInterrupt`` where training was told to stop; its checkpoint is written then.
    """
    for recipe in task.plan.runs:
        if is_trained(recipe, runs):
            continue
        run = train(
            recipe,
            folder_of(recipe, runs),
            resume=True,
            device=device,
            checkpoint_every=checkpoint_every,
            progress=progress,
            sharing=sharing,
        )
        if not run.finished:
            raise KeyboardInterrupt
    return tuple(measure_task(task, runs, device=device, progress=progress))


def run_folder(task: Task, runs: Path) -> Path:
    """Where a task's run lies, or the evaluation of its two runs together."""
    return folder_of(task.plan, runs)


def folder_of(plan: Plan, runs: Path) -> Path:
    """Where a run lies: seeds and precisions are part of the hash."""
    return runs / plan.hash


def folders_of(task: Task, runs: Path) -> tuple[Path, ...]:
    """All that a task works in, by name: who takes them in this order waits for nobody in vain."""
    all_of_it = {folder_of(each, runs) for each in (task.plan, *task.plan.runs)}
    return tuple(sorted(all_of_it))


def is_trained(recipe: Recipe, runs: Path) -> bool:
    """Whether a run has taken all its steps."""
    try:
        FinishedRun.open(folder_of(recipe, runs))
    except ValueError:
        return False
    return True


def measure_task(
    task: Task, runs: Path, *, device: torch.device, progress: bool = False
) -> Iterator[Record]:
    """Evaluate a run that was trained, or two."""
    folders = [folder_of(run, runs) for run in task.plan.runs]
    finished = FinishedRun.of(task.plan, folders)
    network = finished.plan.joined([load_network(folder) for folder in folders])
    for measured in measure_run(
        finished,
        network.to(device).eval(),
        task.asked,
        device=device,
        states=run_folder(task, runs),
        progress=progress,
    ):
        yield measured.record
