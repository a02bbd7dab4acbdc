"""The main job in a few minutes on two cores: train four classifiers, tip them over, compare.

    upright demo

Trains ``std``, ``std*``, ``AT(rob, Wo-10)`` and ``KL(rob, Wo-10)`` on ``glyphs`` with a small
network, measures natural and grid accuracy, prints the paper's table, and writes a page to
explore what it found. Two runs at a time, each on one core: such small networks gain little from a
second one.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column, Table

from upright.attacks import GridSearch, usual_grid
from upright.evaluation import Question
from upright.heap import keep_freed
from upright.measure import FinishedRun, Loaded, choose_shown, load_images, measure, save_answers
from upright.objective import parse_objective
from upright.record_files import append
from upright.report.figures import Outcome, draw_demo, find_example
from upright.report.page import read_contents, write_report
from upright.space import PAPER, Space
from upright.terminal import plain_console, printable
from upright.train import Recipe, train

__all__ = ["main"]

# λ is 8 in the paper's 80,000 steps; in a thousandth of them so strong a penalty holds the rest up.
METHODS = ("std", "std*", "AT(rob, Wo-10)", "KL(rob, Wo-10; λ=1)")
_MOST_POSES = 1000


@dataclass(frozen=True)
class _Job:
    recipe: Recipe
    out: Path
    number: int
    test_images: int

    @property
    def grid(self) -> GridSearch:
        return _grid(self.recipe.space)

    @property
    def folder(self) -> Path:
        return self.out / f"run-{self.number}"

    def step(self) -> int | None:
        """How far its training is, by the log that it writes; None where it has not begun."""
        try:
            text = (self.folder / "log.jsonl").read_text()
        except OSError:
            return 0 if self.folder.exists() else None
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half written
        return int(json.loads(lines[-1])["step"]) if lines else 0


class _Lines:
    """What each network is at: a live line in a terminal, elsewhere a line when that changes."""

    def __init__(self, jobs: list[_Job], console: Console) -> None:
        self._jobs, self._console = jobs, console
        columns = (
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[doing]}", table_column=Column(no_wrap=False)),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks = {
            # One more than its steps: the last is the evaluation.
            job: self._bars.add_task(
                str(job.recipe.objective), total=job.recipe.steps + 1, doing="waits"
            )
            for job in jobs
        }
        self._said = dict.fromkeys(jobs, "waits")

    def __enter__(self) -> _Lines:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def look(self) -> None:
        """See how far the trainings are."""
        for job in self._jobs:
            step = job.step()
            if step is not None and job in self._said:
                self._show(job, step, "trains" if step < job.recipe.steps else "is tipped over")

    def finish(self, job: _Job, outcome: Outcome) -> None:
        """Show the accuracies of a network that is done."""
        text = f"natural {100 * outcome.natural:.1f} %, {job.grid} {100 * outcome.grid:.1f} %"
        self._show(job, job.recipe.steps + 1, f"{text}, {outcome.seconds:.0f} s")
        del self._said[job]

    def _show(self, job: _Job, step: int, doing: str) -> None:
        self._bars.update(self._tasks[job], completed=step, doing=doing)
        if self._said[job] != doing and not self._console.is_terminal:
            self._console.print(f"  {job.recipe.objective}: {doing}")
        self._said[job] = doing


def main(
    out: Path = Path("runs/demo"),
    *,
    space: str | Space = PAPER,
    steps: int = 1200,
    test_images: int = 300,
) -> None:
    """Run the demo on poses of any space; what it makes is under ``out``."""
    began = time.perf_counter()
    console = plain_console()
    space = Space.of(space)
    console.print(
        f"Training {len(METHODS)} classifiers on glyphs, then changing each of {test_images} test "
        f"images in {_grid(space).passes_per_image} ways of {space}. A few minutes on two cores."
    )
    jobs = [
        _Job(_recipe(method, steps, space), out, number, test_images)
        for number, method in enumerate(METHODS)
    ]
    for old in (*(job.folder for job in jobs), out / "saved"):
        shutil.rmtree(old, ignore_errors=True)
    (out / "records.jsonl").unlink(missing_ok=True)
    outcomes = _run(jobs, console)
    in_order = [outcomes[str(job.recipe.objective)] for job in jobs]
    console.print(_table(in_order, str(_grid(space))))
    page = _report(in_order, out, str(_grid(space)))
    took = f"All of it took {time.perf_counter() - began:.0f} s."
    console.print(printable(f"{took} Figure: {out}/demo.png"), soft_wrap=True)
    console.print(printable(f"Open this page to try poses yourself: {page}"), soft_wrap=True)


def _report(outcomes: list[Outcome], out: Path, grid: str) -> Path:
    """Draw the figure and write the page, from what was recorded and saved alone."""
    contents = read_contents(out)
    example = find_example(contents.exhibitions[0])
    drawing = None if example is None else draw_demo(outcomes, example, grid)
    if drawing is not None:
        drawing.write(out)
    return write_report(contents, out / "report")


def _grid(space: Space) -> GridSearch:
    """The usual grid; of many axes fewer values, so that it takes as long as the paper's.

    >>> print(_grid(PAPER), _grid(Space.of("shift rotate zoom")))
    grid-775 grid-5x5x7x5
    """
    return usual_grid(space, _MOST_POSES)


def _recipe(method: str, steps: int, space: Space = PAPER) -> Recipe:
    return Recipe(
        objective=parse_objective(method),
        data="glyphs",
        space=space,
        train_images=8000,
        model="convnet",
        steps=steps,
        batch=32,
        learning_rate=0.02,
        flips=False,  # a mirrored digit is no digit
    )


def _run(jobs: list[_Job], console: Console) -> dict[str, Outcome]:
    """Train and evaluate, the longest first, two at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context, initializer=_begin_worker) as pool:
        try:
            waiting = {pool.submit(_train_and_evaluate, job): job for job in reversed(jobs)}
            with _Lines(jobs, console) as lines:
                return _watched(waiting, lines)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _begin_worker() -> None:
    keep_freed()
    torch.set_num_threads(1)


def _watched(waiting: dict[Future[Outcome], _Job], lines: _Lines) -> dict[str, Outcome]:
    outcomes = {}
    while waiting:
        done, _ = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
        lines.look()
        for each in done:
            outcome = outcomes[each.result().method] = each.result()
            lines.finish(waiting.pop(each), outcome)
    return outcomes


def _train_and_evaluate(job: _Job) -> Outcome:
    began = time.perf_counter()
    run = train(job.recipe, job.folder, log_every=10)
    if not run.finished:
        raise KeyboardInterrupt
    question = Question.of(
        [job.grid], space=job.recipe.space, limit=job.test_images, only_accuracy=True
    )
    loaded = Loaded(
        model=run.model,
        subject=FinishedRun.open(job.folder),
        data=load_images(question, "glyphs"),
        data_name="glyphs",
        question=question,
        device=torch.device("cpu"),
    )
    found = measure(loaded)
    append(job.out / "records.jsonl", found.record)
    save_answers(job.out / "saved", found, choose_shown(loaded), name=str(job.folder))
    return Outcome(
        method=job.recipe.method,
        natural=found.evaluation.natural_accuracy,
        grid=found.evaluation.attacks[str(job.grid)].accuracy,
        seconds=time.perf_counter() - began,
    )


def _table(outcomes: list[Outcome], grid: str) -> Table:
    """The paper's table, with how much of the error before it each method removes."""
    table = Table(title="accuracy in %, and how much of a method's grid error is gone")
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.method, justify="right")
    table.add_row("natural", *(f"{100 * outcome.natural:.1f}" for outcome in outcomes))
    table.add_row(grid, *(f"{100 * outcome.grid:.1f}" for outcome in outcomes))
    for base in outcomes[1:3]:
        reductions = [
            f"{100 * (outcome.grid - base.grid) / (1 - base.grid):.0f} %"
            if outcome.grid > base.grid
            else ""
            for outcome in outcomes
        ]
        table.add_row(f"error removed from {base.method}", *reductions)
    return table
