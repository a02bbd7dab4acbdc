"""The training loop."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from upright.data import LabelledImages, load_data
from upright.train.checkpoint import Checkpoint, RunDirectory
from upright.train.learner import Learner, Speed
from upright.train.log import Log
from upright.train.recipe import Recipe

__all__ = ["TrainedRun", "train"]


@dataclass(frozen=True)
class TrainedRun:
    """A run that has ended, or was stopped: then it continues with ``resume=True``."""

    path: Path
    recipe: Recipe
    model: nn.Module
    """In evaluation mode."""
    step: int
    seconds: float
    """Of this call, not of those before it."""

    @property
    def finished(self) -> bool:
        return self.step == self.recipe.steps


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    data: LabelledImages | None = None,
    resume: bool = False,
    device: torch.device | str = "cpu",
    speed: Speed | None = None,
    checkpoint_every: int = 1000,
    log_every: int = 100,
    progress: bool = False,
    tensorboard: bool = False,
) -> TrainedRun:
    """Train a network by a recipe, in a run directory.

    Args:
        recipe: what to train.
        out: the run directory, made where it is missing.
        data: the training data; by default those that the recipe names.
        resume: continue the run in ``out``, if one is there.
        device: where to compute.
        speed: what makes a step fast on a GPU, by default all that can be used.
        checkpoint_every: steps between checkpoints; a killed run loses at most so many.
        log_every: steps between lines of the log.
        progress: show a bar with the loss, accuracies, speed and time left.
        tensorboard: write TensorBoard events too.
    """
    began = time.perf_counter()
    if data is None:
        data = load_data(recipe.data, split="train", limit=recipe.train_images)
    run = RunDirectory.create(
        Path(out), recipe, classes=data.classes, channels=data.images.shape[1], resume=resume
    )
    place = torch.device(device)
    with torch.random.fork_rng(), _interruptions() as interrupted:
        learner = Learner(recipe, data, place, (speed or Speed()).possible_on(place))
        checkpoint = run.load()
        if checkpoint is not None:
            learner.restore(checkpoint.tensors)
        step = start = checkpoint.step if checkpoint is not None else 0
        with Log(
            run.path,
            start=start,
            steps=recipe.steps,
            batch=recipe.batch,
            progress=progress,
            tensorboard=tensorboard,
        ) as log:
            while step < recipe.steps and not interrupted.is_set():
                learner.step(step)
                step += 1
                ends = step == recipe.steps or interrupted.is_set()
                logs, saves = step % log_every == 0 or ends, step % checkpoint_every == 0 or ends
                # To look at the loss is to wait for the device, which costs nothing on a CPU only.
                if (logs or saves or place.type == "cpu") and not learner.is_sane():
                    raise ValueError(_diverged(step, recipe, run))
                if logs:
                    log.write(step, learner.means(), recipe.learning_rate_at(step - 1))
                if saves:
                    run.save(Checkpoint(step, learner.state()))
    return TrainedRun(run.path, recipe, learner.model.eval(), step, time.perf_counter() - began)


def _diverged(step: int, recipe: Recipe, run: RunDirectory) -> str:
    return (
        f"the loss is no longer finite at step {step} with {recipe.objective}, learning rate "
        f"{recipe.learning_rate_at(step - 1):g}, batch {recipe.batch}, {recipe.precision} and "
        f"seed {recipe.seed}; the last good checkpoint is kept in {run.path}; try a lower learning "
        "rate or λ"
    )


@contextlib.contextmanager
def _interruptions() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event; the second acts as it always does."""
    event = threading.Event()
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        event.set()
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    try:
        yield event
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)
