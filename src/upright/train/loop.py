"""The training loop, for one run or for several at once."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from upright.data import LabelledImages, load_data
from upright.files import alone_in
from upright.train.checkpoint import Checkpoint, RunDirectory
from upright.train.learner import Learner, Speed
from upright.train.log import Log
from upright.train.recipe import Recipe

__all__ = ["TrainedRun", "train", "train_together"]


@dataclass(frozen=True)
class TrainedRun:
    """A run that has ended, or was stopped: then it continues with ``resume=True``."""

    path: Path
    recipe: Recipe
    model: nn.Module
    """In evaluation mode."""
    step: int
    seconds: float
    """Of training in all, calls before this one included."""

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
    (run,) = train_together(
        {Path(out): recipe},
        data=data,
        resume=resume,
        device=device,
        speed=speed,
        checkpoint_every=checkpoint_every,
        log_every=log_every,
        progress=progress,
        tensorboard=tensorboard,
    )
    return run


def train_together(
    recipes: Mapping[Path, Recipe],
    *,
    data: LabelledImages | None = None,
    resume: bool = False,
    device: torch.device | str = "cpu",
    speed: Speed | None = None,
    checkpoint_every: int = 1000,
    log_every: int = 100,
    progress: bool = False,
    tensorboard: bool = False,
) -> list[TrainedRun]:
    """Train several networks on the same data side by side, each in its run directory.

    The runs take turns, step by step, and each gives what it would give alone: the data lie on the
    device once, and a network is compiled once. The arguments are those of ``train``.
    """
    for name, steps in (("checkpoint_every", checkpoint_every), ("log_every", log_every)):
        if steps < 1:
            raise ValueError(f"{name} must be at least 1, but is {steps}")
    place = torch.device(device)
    data = _shared_data(data, list(recipes.values()))
    digest = data.digest()
    data = LabelledImages(data.images.to(place), data.labels.to(place), data.classes)
    with torch.random.fork_rng(), _interruptions() as interrupted, contextlib.ExitStack() as held:
        fast = (speed or Speed()).possible_on(place)
        # Before the folders: a recipe that cannot be followed must not leave its name on one.
        learners = [Learner(recipe, data, place, fast) for recipe in recipes.values()]
        runs = []
        for path, learner in zip(recipes, learners, strict=True):
            held.enter_context(alone_in(path))
            directory = RunDirectory.create(
                path,
                learner.recipe,
                classes=data.classes,
                channels=data.images.shape[1],
                resume=resume,
                data_digest=digest,
            )
            runs.append(_Run(directory, learner, checkpoint_every, log_every))
        for run in runs:
            bar = progress and run is runs[-1]
            log = Log(run.directory.path, run.step, run.recipe, bar=bar, tensorboard=tensorboard)
            run.log = held.enter_context(log)
        while not interrupted.is_set() and not all(run.over for run in runs):
            for run in runs:
                if not run.over and not interrupted.is_set():
                    run.advance()
        for run in runs:
            run.settle()
    for run in runs:
        if run.failure is not None:
            raise run.failure
    return [
        TrainedRun(run.directory.path, run.recipe, run.learner.model.eval(), run.step, run.seconds)
        for run in runs
    ]


class _Run:
    """A run on its way: where it is, and what it writes as it goes."""

    log: Log

    def __init__(
        self, directory: RunDirectory, learner: Learner, checkpoint_every: int, log_every: int
    ) -> None:
        self.directory, self.learner, self.recipe = directory, learner, learner.recipe
        self._checkpoint_every, self._log_every = checkpoint_every, log_every
        self.step = self._saved = 0
        self.failure: Exception | None = None
        self._seconds_before = 0.0
        checkpoint = directory.load()
        if checkpoint is not None:
            learner.restore(checkpoint.tensors)
            self.step = self._saved = checkpoint.step
            self._seconds_before = checkpoint.seconds
        self._began = time.perf_counter()

    @property
    def finished(self) -> bool:
        return self.step == self.recipe.steps

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began

    @property
    def over(self) -> bool:
        return self.finished or self.failure is not None

    def advance(self) -> None:
        """Take a step; a failure waits for the other runs, which shall not lose their work."""
        try:
            self._advance()
        except (ValueError, OSError) as failure:
            self.failure = failure

    def _advance(self) -> None:
        """Take a step; write the log and a checkpoint when they are due."""
        self.learner.step(self.step)
        self.step += 1
        logs = self.step % self._log_every == 0 or self.finished
        saves = self.step % self._checkpoint_every == 0
        # To look at the loss is to wait for the device, which costs nothing on a CPU only.
        if (logs or saves or self.learner.device.type == "cpu") and not self.learner.is_sane():
            raise ValueError(_diverged(self.step, self.recipe, self.directory))
        if logs:
            rate = self.recipe.learning_rate_at(self.step - 1)
            self.log.write(self.step, self.learner.means(), rate)
        if saves:
            self.save()

    def settle(self) -> None:
        """Save what was done since the last checkpoint, at the end or after an interruption."""
        if self.failure is None and self.step > self._saved:
            self.save()

    def save(self) -> None:
        state = self.learner.state()
        # A finite loss does not say that the update after it left every weight finite.
        finite = all(bool(tensor.isfinite().all()) for tensor in state.values())
        if not (finite and self.learner.is_sane()):
            raise ValueError(_diverged(self.step, self.recipe, self.directory))
        self.directory.save(Checkpoint(self.step, state, self.seconds))
        self._saved = self.step


def _shared_data(data: LabelledImages | None, recipes: list[Recipe]) -> LabelledImages:
    """The training data that all recipes share."""
    sources = {(recipe.data, recipe.train_images) for recipe in recipes}
    if len(sources) != 1:
        raise ValueError(f"runs side by side need the same data, but ask for {sources}")
    if data is None:
        data = load_data(recipes[0].data, split="train", limit=recipes[0].train_images)
    return data


def _diverged(step: int, recipe: Recipe, run: RunDirectory) -> str:
    return (
        f"the loss or a weight is no longer finite at step {step} with {recipe.objective}, "
        f"learning rate {recipe.learning_rate_at(step - 1):g}, batch {recipe.batch}, "
        f"{recipe.precision} and seed {recipe.seed}; the last good checkpoint is kept in "
        f"{run.path}; try a lower learning rate or λ"
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
