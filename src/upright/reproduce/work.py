"""A run to make, and how it is made: train, evaluate, and give the records.

Everything here can be done again after it was stopped at any point: training continues from the
run's last checkpoint, an evaluation from its state, and what is done is not done twice. A run's
folder has the name of its recipe's hash, so that whoever takes a task up finds what was done of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from upright.attacks import CandidateSearch, parse_attack
from upright.data import load_data
from upright.evaluation import evaluate
from upright.models import in_half_precision
from upright.records import Record
from upright.reproduce.record import FinishedRun, record_of
from upright.space import PAPER
from upright.train import Recipe, load_network, train

__all__ = ["Precision", "Task", "is_trained", "measure", "measure_network", "perform", "run_folder"]

Precision = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A recipe to follow, and the attacks under which to evaluate what it gives."""

    recipe: Recipe
    attacks: tuple[str, ...] = ("grid-775",)
    test_images: int | None = None
    """The first so many test images only; a cell of the paper takes all of them."""

    def __str__(self) -> str:
        recipe = self.recipe
        size = f", batch {recipe.batch}" if recipe.batch != Recipe.batch else ""
        network = f", {recipe.model}" if recipe.model != Recipe.model else ""
        return f"{recipe.objective} on {recipe.data}{network}{size}, seed {recipe.seed}"


def perform(
    task: Task,
    runs: Path,
    *,
    device: torch.device,
    checkpoint_every: int = 1000,
    progress: bool = False,
) -> tuple[Record, ...]:
    """Train and evaluate, or what is left to do of it, below the folder ``runs``.

    Gives a record for each group of attacks that can share an evaluation. Raises
    ``KeyboardInterrupt`` where training was told to stop; its checkpoint is written then.
    """
    if not is_trained(task, runs):
        run = train(
            task.recipe,
            run_folder(task, runs),
            resume=True,
            device=device,
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        if not run.finished:
            raise KeyboardInterrupt
    return tuple(measure(task, runs, device=device, progress=progress))


def run_folder(task: Task, runs: Path) -> Path:
    """Where a task's run lies: seeds and precisions are part of the hash."""
    return runs / task.recipe.hash


def is_trained(task: Task, runs: Path) -> bool:
    """Whether a task's run has taken all its steps."""
    try:
        FinishedRun.open(run_folder(task, runs))
    except ValueError:
        return False
    return True


def measure(
    task: Task, runs: Path, *, device: torch.device, progress: bool = False
) -> Iterator[Record]:
    """Evaluate a run that was trained: in float32, or in half precision if it was trained so."""
    folder = run_folder(task, runs)
    run, network = FinishedRun.open(folder), load_network(folder).to(device)
    precision: Precision = "float32" if task.recipe.precision == "float32" else "float16"
    yield from measure_network(
        task, run, network, precision=precision, device=device, states=folder, progress=progress
    )


def measure_network(
    task: Task,
    run: FinishedRun,
    network: nn.Module,
    *,
    precision: Precision,
    device: torch.device,
    states: Path | None = None,
    progress: bool = False,
) -> Iterator[Record]:
    """Evaluate a run's network on the test images: the grids in this precision, S-PGD in float32.

    The signs of a gradient in half precision are not always those of the gradient. With a folder
    for ``states``, an evaluation that was stopped is continued.
    """
    parsed = {name: parse_attack(name) for name in task.attacks}
    listed = [name for name in parsed if isinstance(parsed[name], CandidateSearch)]
    climbing = [name for name in parsed if name not in listed]
    groups: list[tuple[list[str], Precision]] = []
    groups += [(listed, precision)] if listed or not climbing else []
    groups += [(climbing, "float32")] if climbing else []
    data = load_data(task.recipe.data, split="test", limit=task.test_images)
    for attacks, kind in groups:
        settings = _settings(task, kind)
        file = f"evaluation-{_digest(settings, attacks)}.safetensors"
        evaluation = evaluate(
            network if kind == "float32" else in_half_precision(network, kind),
            (data.images, data.labels),
            attacks=attacks,
            only_accuracy=True,
            device=device,
            state=None if states is None else states / file,
            progress=progress,
        )
        yield record_of(
            run, evaluation, data_name=task.recipe.data, data=data, settings=settings, device=device
        )


def _settings(task: Task, precision: str) -> dict[str, Any]:
    """What the evaluation is asked, in the words of ``upright evaluate``: one question, one key."""
    return {
        "space": asdict(PAPER),
        "split": "test",
        "limit": task.test_images,
        "resize": None,
        "center_crop": None,
        "fill": "black",
        "interpolation": "bilinear",
        "canvas": 0,
        "precision": precision,
        "seed": None,
    }


def _digest(settings: dict[str, Any], attacks: Sequence[str]) -> str:
    asked = json.dumps([settings, list(attacks)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:12]
