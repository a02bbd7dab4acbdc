"""The training loop, for one run or for several at once."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from upright.callers import warn_caller
from upright.checks import check_at_least_1
from upright.data import LabelledImages
from upright.files import alone_in
from upright.origin import origin_on
from upright.ranks import ALONE, Ranks
from upright.records import Origin
from upright.train.checkpoint import Checkpoint, RunDirectory
from upright.train.learner import PLAIN, Learner, SlowPath, Speed
from upright.train.log import Log, Pace
from upright.train.network import with_code_digest
from upright.train.pretrained import FreshLayer, with_pretrained_digest
from upright.train.recipe import Recipe, check_own_code
from upright.train.teacher_network import with_teacher_digest

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
    """Of training in all, calls before this one included; of the time that several runs take side
    by side, each has its part."""

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
    ranks: Ranks = ALONE,
    sync_batch_norm: bool = False,
    sharing: int = 1,
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
        ranks: the processes that share each batch, see ``joined_ranks``; all of them call this
            with the same arguments, and rank 0 alone writes.
        sync_batch_norm: let batch norms take their statistics over the images of all ranks, as in
            one process; otherwise each rank normalises its own images.
        sharing: how many processes share the device, each with runs of its own; noted beside the
            time that they take.
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
        ranks=ranks,
        sync_batch_norm=sync_batch_norm,
        sharing=sharing,
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
    ranks: Ranks = ALONE,
    sync_batch_norm: bool = False,
    sharing: int = 1,
) -> list[TrainedRun]:
    """Train several networks on the same data side by side, each in its run directory.

    Each gives what it would give alone. The data lie on the device once, a network is compiled
    once, and on a GPU the steps of different runs overlap. The arguments are those of ``train``.
    """
    check_at_least_1(checkpoint_every=checkpoint_every, log_every=log_every)
    place = torch.device(device)
    # First of all: what is edited from now on is not what trains.
    origin = origin_on(place, processes=ranks.size)
    recipes = {path: _with_digests(recipe) for path, recipe in recipes.items()}
    data = _shared_data(data, list(recipes.values()))
    digest = _common_digest(data, ranks)
    data = LabelledImages(data.images.to(place), data.labels.to(place), data.classes)
    # Its own device only: a process has no business on the GPUs of other ranks.
    forked = torch.random.fork_rng([place] if place.type == "cuda" else [])
    with forked, _interruptions(ranks) as stop, contextlib.ExitStack() as held:
        fast = _possible_speed(speed or Speed(), place, ranks)
        _restore_at_end(held, fast, place)
        # Before the folders: a recipe that cannot be followed must not leave its name on one.
        learners = [
            Learner(recipe, data, place, fast, ranks=ranks, sync_batch_norm=sync_batch_norm)
            for recipe in recipes.values()
        ]
        runs = []
        for path, learner in zip(recipes, learners, strict=True):
            ranks.lead(partial(_hold, held, path))
            create = partial(
                RunDirectory.create,
                path,
                learner.recipe,
                classes=learner.recipe.outputs(data.classes),
                channels=data.images.shape[1],
                resume=resume,
                data_digest=digest,
            )
            runs.append(_Run(ranks.lead(create), learner, origin, checkpoint_every, log_every))
        for run in runs:
            bar = progress and run is runs[-1]
            ranks.lead(partial(run.open_log, held, bar=bar, tensorboard=tensorboard))
        _note_company(runs, sharing)
        _take_turns(runs, stop)
        for run in runs:
            run.settle()
        stopped = stop()
    _raise_failure(runs, stopped=stopped)
    return [
        TrainedRun(run.directory.path, run.recipe, run.learner.result(), run.step, run.seconds)
        for run in runs
    ]


def _restore_at_end(held: contextlib.ExitStack, speed: Speed, device: torch.device) -> None:
    """Put back what learners set for the whole process, when all is done that they began."""
    benchmark = torch.backends.cudnn.benchmark
    held.callback(setattr, torch.backends.cudnn, "benchmark", benchmark)
    if speed.compile:  # without, nothing has imported dynamo, which takes a while
        limit = torch._dynamo.config.recompile_limit
        held.callback(setattr, torch._dynamo.config, "recompile_limit", limit)
    if device.type == "cuda":  # what still runs after a failure reads memory of the learners
        held.callback(torch.cuda.synchronize, device)


def _raise_failure(runs: list[_Run], *, stopped: bool) -> None:
    """Raise what went wrong first, if anything; that all were told to stop comes before it."""
    failure = next((run.failure for run in runs if run.failure is not None), None)
    if failure is None:
        return
    if not stopped:
        raise failure
    warn_caller(str(failure), RuntimeWarning)
    raise KeyboardInterrupt from failure


class _Run:
    """A run on its way: where it is, and what it writes as it goes."""

    log: Log
    """Of rank 0."""

    def __init__(
        self,
        directory: RunDirectory,
        learner: Learner,
        origin: Origin,
        checkpoint_every: int,
        log_every: int,
    ) -> None:
        self.directory, self.learner, self.recipe = directory, learner, learner.recipe
        self._checkpoint_every, self._log_every = checkpoint_every, log_every
        self.step = self._saved = 0
        self.failure: Exception | None = None
        self.seconds = 0.0
        self.beside: int | None = 1
        self._trained_by: tuple[Origin, ...] = (origin,)
        checkpoint = learner.ranks.lead(directory.load)
        if checkpoint is None and learner.fresh:
            warn_caller(learner.fresh, FreshLayer)
        if checkpoint is not None:
            learner.ranks.lead(lambda: directory.forget_after(checkpoint.step))
            learner.restore(checkpoint.tensors)
            self.step = self._saved = checkpoint.step
            self.seconds, self.beside = checkpoint.seconds, checkpoint.beside
            self._trained_by = checkpoint.continued_by(origin)

    def open_log(self, logs: contextlib.ExitStack, *, bar: bool, tensorboard: bool) -> None:
        log = Log(self.directory.path, self.step, self.recipe, bar=bar, tensorboard=tensorboard)
        self.log = logs.enter_context(log)

    @property
    def finished(self) -> bool:
        return self.step == self.recipe.steps

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
        self._take_step()
        self.step += 1
        if self.learner.ranks.leads:
            self.log.passed(self.step)
        logs = self.step % self._log_every == 0 or self.finished
        saves = self.step % self._checkpoint_every == 0
        # To look at the loss is to wait for the device, which costs nothing on a CPU only.
        if (logs or saves or self.learner.device.type == "cpu") and not self.learner.is_sane():
            raise ValueError(self._diverged())
        if logs:
            rate, means = self.recipe.learning_rate_at(self.step - 1), self.learner.means()
            self.learner.ranks.lead(lambda: self.log.write(self.step, means, rate))
        if saves:
            self.save()

    def _take_step(self) -> None:
        """Take a step. Of several ranks one alone may fail in it, which then ends all of them."""
        try:
            self.learner.step(self.step)
        except (ValueError, OSError) as failure:
            if self.learner.ranks.alone:
                raise
            raise RuntimeError(f"rank {self.learner.ranks.rank} failed: {failure}") from failure

    def settle(self) -> None:
        """Save what was done since the last checkpoint, at the end or after an interruption."""
        if self.failure is None and self.step > self._saved:
            try:
                self.save()
            except (ValueError, OSError) as failure:  # waits too: others have work to save
                self.failure = failure

    def save(self) -> None:
        state = self.learner.state()
        # A finite loss does not say that the update after it left every weight finite.
        finite = all(bool(tensor.isfinite().all()) for tensor in state.values())
        if not (finite and self.learner.is_sane()):
            raise ValueError(self._diverged())
        checkpoint = Checkpoint(self.step, state, self.seconds, self.beside, self._trained_by)
        self.learner.ranks.lead(lambda: self.directory.save(checkpoint))
        self._saved = self.step

    def _diverged(self) -> str:
        recipe, step = self.recipe, self.step
        kept = f"the last good checkpoint is kept in {self.directory.path}; " if self._saved else ""
        return (
            f"the loss or a weight is no longer finite at step {step} with {recipe.objective}, "
            f"learning rate {recipe.learning_rate_at(step - 1):g}, batch {recipe.batch}, "
            f"{recipe.precision} and seed {recipe.seed}; {kept}try a lower learning rate or λ"
        )


def _note_company(runs: list[_Run], sharing: int) -> None:
    """Note beside how many the runs train, at the most, where nothing about it is unknown."""
    going = [run for run in runs if not run.over]
    for run in going:
        if run.beside is not None:
            run.beside = max(run.beside, sharing * len(going))


def _take_turns(runs: list[_Run], stop: Callable[[], bool]) -> None:
    """Advance all runs step by step, until they are over or told to stop."""
    for run in runs:  # before the first step: nothing may run while a graph is recorded
        if not run.over:
            run.learner.make_ready()
    pace = Pace(max(run.recipe.steps - run.step for run in runs), runs[0].learner.device)
    began, stopped = time.perf_counter(), False
    while not stopped and (going := [run for run in runs if not run.over]):
        for run in going:
            stopped = stopped or stop()
            if not stopped:
                run.advance()
        now = time.perf_counter()
        for run in going:
            run.seconds += (now - began) / len(going)
        began = now
        if runs[0].learner.ranks.leads:
            pace.passed_one()


def _hold(held: contextlib.ExitStack, path: Path) -> None:
    """Keep other jobs out of a folder for as long as ``held`` lasts."""
    held.enter_context(alone_in(path))


def _with_digests(recipe: Recipe) -> Recipe:
    """Note in a recipe what it is about to read: code, and weights of others."""
    check_own_code(recipe)
    return with_teacher_digest(with_pretrained_digest(with_code_digest(recipe)))


def _shared_data(data: LabelledImages | None, recipes: list[Recipe]) -> LabelledImages:
    """The training data that all recipes share."""
    sources = {recipe.training_data for recipe in recipes}
    if len(sources) != 1:
        raise ValueError(f"runs side by side need the same data, but ask for {sources}")
    if data is None:
        return recipes[0].load_data()
    for recipe in recipes:
        _check_given(data, recipe)
    return data


def _check_given(data: LabelledImages, recipe: Recipe) -> None:
    """Check that data that are given are what a recipe says of them, which later steps rely on."""
    if recipe.held_out:
        raise ValueError(
            "held_out leaves images out of data that are loaded by their name, and these are "
            "given; leave out one of both"
        )
    if recipe.train_images not in (None, len(data)):
        raise ValueError(
            f"train_images is {recipe.train_images}, but {len(data)} images are given; leave it "
            "out, or give as many"
        )


def _common_digest(data: LabelledImages, ranks: Ranks) -> str:
    """The digest of data that all processes share."""
    digest = data.digest()
    if len(set(ranks.gather(digest))) > 1:
        raise ValueError("the processes have different data; give all of them the same files")
    return digest


def _possible_speed(speed: Speed, device: torch.device, ranks: Ranks) -> Speed:
    """Leave out what cannot be done here, and say so."""
    possible = speed.possible_on(device)
    if possible != PLAIN and not ranks.alone:
        message = f"no CUDA graph, kernels or compilation: {ranks.size} processes share the step"
        warn_caller(message, SlowPath)
        return PLAIN
    return possible


@contextlib.contextmanager
def _interruptions(ranks: Ranks) -> Iterator[Callable[[], bool]]:
    """Give a function that says, to all ranks at once, whether any was told to stop.

    The first Ctrl-C or SIGTERM does; the second acts as it always does in a process that is alone.
    Of several, each may be told twice, by torchrun and by what told torchrun.
    """
    event = threading.Event()
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        event.set()
        if ranks.alone:
            signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    try:
        yield lambda: ranks.any(event.is_set())
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)
