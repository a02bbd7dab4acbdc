"""A sweep on a Ray cluster of this machine, of which workers, nodes and drivers are killed.

    python benchmarks/cluster.py [--kills 24] [--runs 8] [--steps 100] [--seed 0] [--json FILE]

Two nodes with a CPU each train and evaluate small networks on ``glyphs``. Again and again a worker,
its node or the driver is killed, as drawn at random: most often soon after a task has got further,
at times before. What was killed comes back: the driver submits lost tasks again, a new node takes
the place of the old one, and so does a new driver. In the end every run must be recorded once and,
times aside, as by an undisturbed sweep without a cluster.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from timing import machine, write_json

from upright.files import lock
from upright.objective import parse_objective
from upright.paper import INVARIANCE
from upright.paper.missing import make_missing, undone
from upright.record_files import RecordFolder
from upright.records import Record
from upright.train import Recipe
from upright.workers import LocalEngine, Task, run_folder
from upright.workers.folder_claim import Claim, newest_step, read_claim
from upright.workers.ray_engine import ray_engine

CHECKPOINT_EVERY = 10
VICTIMS = (*["worker"] * 4, *["node"] * 2, "driver")
"""How often each is drawn."""


@dataclass(frozen=True)
class Kill:
    """What was killed, and how far its run was."""

    victim: str
    task: Task
    attempt: str
    step: int
    """Of the newest checkpoint at that time."""


@dataclass(frozen=True)
class Figures:
    """What the sweep has shown."""

    runs: int
    steps: int
    checkpoint_every: int
    seconds: float
    killed: dict[str, int]
    while_training: int
    while_evaluating: int
    records: int
    lost: int
    """Runs without a record."""
    twice: int
    """Records beyond the first of a run."""
    unequal: int
    """Records that differ from the undisturbed ones in more than times."""
    set_back: int
    """Attempts after a kill that found an older checkpoint than was there at the kill."""
    left_behind: tuple[str, ...]
    """Files in the folder of the runs that an undisturbed sweep does not leave; claims aside."""


class Stage:
    """A cluster with a driver, and ways to kill parts of them."""

    def __init__(self, tasks: Sequence[Task], folder: Path) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        from ray.cluster_utils import Cluster

        self.tasks, self.runs, self.results = (
            tasks,
            folder / "runs",
            RecordFolder(folder / "results"),
        )
        self._node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        head = {**self._node, "num_cpus": 0, "include_dashboard": False}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: list[Any] = [self.cluster.add_node(**self._node) for _ in range(2)]
        self.driver = self._start_driver()

    def _start_driver(self) -> BaseProcess:
        driver = multiprocessing.get_context("spawn").Process(
            target=drive,
            args=(self.cluster.address, self.runs, self.results.folder, list(self.tasks)),
        )
        driver.start()
        return driver

    def done(self) -> bool:
        return not undone(INVARIANCE, self.tasks, self.results.read())

    def at_work(self) -> list[tuple[Task, Claim]]:
        """Tasks that a worker holds at this moment."""
        found = []
        for task in self.tasks:
            folder = run_folder(task, self.runs)
            claim = read_claim(folder)
            if claim is not None and is_held(folder):
                found.append((task, claim))
        return found

    def kill(self, victim: str, claim: Claim) -> None:
        if victim == "worker":
            os.kill(claim.process, signal.SIGKILL)
        elif victim == "driver":
            self.driver.kill()
        else:
            (node,) = [each for each in self.nodes if claim.node.endswith(each.node_id[:8])]
            self.cluster.remove_node(node, allow_graceful=False)
            self.nodes.remove(node)
            self.nodes.append(self.cluster.add_node(**self._node))

    def keep_driver(self) -> None:
        """Start another driver where the last was killed, or gave something up."""
        if not self.driver.is_alive() and not self.done():
            self.driver = self._start_driver()

    def close(self) -> None:
        self.driver.kill()
        self.driver.join()
        self.cluster.shutdown()


def is_held(folder: Path) -> bool:
    """Whether a worker has claimed a folder and lives."""
    with (folder / ".claim").open() as file:
        try:
            lock(file.fileno(), wait=False)
        except BlockingIOError:
            return True
    return False


def drive(address: str, runs: Path, results: Path, tasks: list[Task]) -> None:
    """Make what is missing, as a process of its own."""
    with ray_engine(
        runs=runs, address=address, checkpoint_every=CHECKPOINT_EVERY, say=print
    ) as engine:
        for failure in make_missing(INVARIANCE, tasks, engine, RecordFolder(results), say=print):
            print(f"failed: {failure.task}: {failure.reason}")


def disturb(stage: Stage, kills: int, chance: random.Random) -> list[Kill]:
    """Kill so many; then wait until all is recorded."""
    killed: list[Kill] = []
    while not stage.done():
        stage.keep_driver()
        time.sleep(chance.uniform(0.1, 0.5))
        for task, claim in stage.at_work() if len(killed) < kills else ():
            step = newest_step(run_folder(task, stage.runs))
            dead = any(kill.attempt == claim.attempt for kill in killed)
            # Most attempts may get a little further, or the sweep would take for ever.
            further = step > claim.step or step == task.plan.total_steps
            due = chance.random() < (0.2 if further else 0.01)
            if due and not dead and stage.driver.is_alive():
                killed.append(Kill(chance.choice(VICTIMS), task, claim.attempt, step))
                print(
                    f"kill {len(killed)}: a {killed[-1].victim}, step {step} of {task}", flush=True
                )
                stage.kill(killed[-1].victim, claim)
                break
    return killed


def count_set_back(stage: Stage, kills: Sequence[Kill]) -> int:
    """The last attempt at each run must have begun at the newest checkpoint of every kill."""
    return sum(
        claim is None or claim.step < kill.step
        for kill in kills
        if (claim := read_claim(run_folder(kill.task, stage.runs))) is None
        or claim.attempt != kill.attempt
    )


def left_behind(runs: Path, undisturbed: Path) -> tuple[str, ...]:
    """What lies among the runs and not among those that were never disturbed."""
    here, there = (
        {str(file.relative_to(folder)) for file in folder.rglob("*") if file.name != ".claim"}
        for folder in (runs, undisturbed)
    )
    return tuple(sorted(here - there))


def timeless(record: Record) -> Record:
    """A record but for when and how long."""
    epoch = "1970-01-01T00:00:00+00:00"
    return replace(record, finished=epoch, train_seconds=0.0, evaluate_seconds=0.0)


def judge(
    tasks: Sequence[Task], records: Sequence[Record], undisturbed: Sequence[Record]
) -> dict[str, int]:
    """Hold what a disturbed sweep has recorded against an undisturbed one."""
    counts = Counter(record.recipe_hash for record in records)
    expected = {record.recipe_hash: timeless(record) for record in undisturbed}
    return {
        "records": len(records),
        "lost": sum(counts[task.plan.hash] == 0 for task in tasks),
        "twice": sum(count - 1 for count in counts.values()),
        "unequal": sum(timeless(each) != expected.get(each.recipe_hash) for each in records),
    }


def measure(*, runs: int, steps: int, kills: int, seed: int) -> Figures:
    recipe = Recipe(
        objective=parse_objective("KL(rob, Wo-2)"),
        data="glyphs",
        train_images=64,
        model="convnet",
        steps=steps,
        batch=8,
    )
    tasks = [
        Task(plan=replace(recipe, seed=each), attacks=("grid-5x5x11",), test_images=100)
        for each in range(runs)
    ]
    torch.set_num_threads(1)  # as Ray's workers: more would round otherwise
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = RecordFolder(folder / "undisturbed")
        engine = LocalEngine(
            runs=folder / "other-runs",
            device=torch.device("cpu"),
            checkpoint_every=CHECKPOINT_EVERY,
        )
        assert make_missing(INVARIANCE, tasks, engine, plain) == ()
        stage = Stage(tasks, folder)
        began = time.perf_counter()
        try:
            killed = disturb(stage, kills, random.Random(seed))
        finally:
            stage.close()
        seconds = time.perf_counter() - began
        return Figures(
            runs=runs,
            steps=steps,
            checkpoint_every=CHECKPOINT_EVERY,
            seconds=round(seconds, 1),
            killed=dict(Counter(kill.victim for kill in killed)),
            while_training=sum(kill.step < steps for kill in killed),
            while_evaluating=sum(kill.step == steps for kill in killed),
            set_back=count_set_back(stage, killed),
            left_behind=left_behind(stage.runs, engine.runs),
            **judge(tasks, stage.results.read(), plain.read()),
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    figures = measure(
        runs=options.runs, steps=options.steps, kills=options.kills, seed=options.seed
    )
    for name, value in asdict(figures).items():
        print(f"{name}: {value}")
    write_json(options.json, {"machine": machine("cpu"), **asdict(figures)})
    wrong = figures.lost + figures.twice + figures.unequal + figures.set_back
    wrong += len(figures.left_behind)
    enough = sum(figures.killed.values()) >= options.kills
    raise SystemExit(0 if wrong == 0 and enough else 1)


if __name__ == "__main__":
    main()
