"""Train, kill, resume, evaluate, over and over, where little goes well; and count what was lost.

    python benchmarks/soak.py --minutes 60 [--seed N] [--json FILE]

Each cycle trains a tiny network on glyphs and evaluates it, with ``--state`` and ``--record``, on a
nearly full disk and with little memory. Faults come at random: processes are killed, terminated,
stopped for a while, or get a rival in the same folder; the disk is full, or fills up and empties
while they work; memory runs out, and files are cut or have a bit flipped between two attempts.
After each cycle the run must have the bits of an undisturbed one, its record must be there exactly
once with the same accuracies, and nothing half written may be left. Ends with status 1 where
anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from hardship import (
    PATIENCE_S,
    Child,
    Ended,
    Limits,
    MemoryGroup,
    SmallDisk,
    memory_group,
    small_disk,
    warm_up,
)
from soak_task import DAMAGES, Task, glyphs
from timing import print_table, write_json

from upright.cli import main as upright
from upright.record_files import read
from upright.records import Record

OBJECTIVES = ("KL(rob, Wo-2)", "std", "AT(rob, S-PGD; steps=1)", "L2(nat, rnd)")
FAULTS = (
    *("kill", "terminate", "stop", "rival", "full disk", "tide", "no memory", "damage", "none"),
)
CHANCES = (8, 3, 2, 2, 4, 4, 3, 7, 3)
NEARLY_FULL = 400_000
"""Bytes that are free on the disk while nothing is wrong: some nine checkpoints."""
CHECKPOINT = 45_000
"""Bytes, about."""


@dataclass
class Figures:
    """What was done and what came of it."""

    cycles: int = 0
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


class Soak:
    """Cycles of one process after the other."""

    def __init__(self, desk: Path, disk: SmallDisk, group: MemoryGroup, seed: int) -> None:
        self.desk, self.disk, self.group = desk, disk, group
        self.random, self.figures = random.Random(seed), Figures()
        self.data = f"npz:{glyphs(desk)}"
        self._seconds = {"train": 1.0, "evaluate": 1.0}
        self._torn_lines = 0

    def warm_up(self) -> None:
        task = Task(0, OBJECTIVES[0], self.data, self.desk / "warm", self.desk / "warm.jsonl")
        warm_up(upright, (task.train, task.evaluate), self.desk)

    def cycle(self) -> None:
        """Train and evaluate under faults, compare with the same undisturbed, and clear up."""
        number = self.figures.cycles
        objective = self.random.choice(OBJECTIVES)
        calm = Task(number, objective, self.data, self.desk / "calm", self.desk / "calm.jsonl")
        run, records = self.disk.folder / f"run-{number}", self.disk.folder / "records.jsonl"
        task = Task(number, objective, self.data, run, records)
        self._undisturbed(calm)
        done = self._until_done(
            task, task.train, ("weights", "digest", "log")
        ) and self._until_done(task, task.evaluate, ("weights", "state", "records"))
        self.figures.cycles += 1
        if done:  # or there is nothing to compare
            self._check(task, calm)
        for old in (calm.run, task.run):
            shutil.rmtree(old, ignore_errors=True)
        for file in (calm.state, calm.records, task.state):
            file.unlink(missing_ok=True)

    def _undisturbed(self, task: Task) -> None:
        for command in (task.train, task.evaluate):
            ended = self._child(command, group=MemoryGroup(None)).wait(PATIENCE_S)
            if ended is None or ended.code:
                raise RuntimeError(f"an undisturbed command failed: {ended}")
            self._seconds[command[0]] = ended.seconds

    def _until_done(self, task: Task, command: Sequence[str], files: Sequence[str]) -> bool:
        """Try until a command succeeds; as a person would, who does what the messages say."""
        ended: Ended | None = None
        for attempt in range(60):
            fault = self.random.choices(FAULTS, CHANCES)[0] if attempt < 12 else "none"
            self.disk.leave(NEARLY_FULL)
            if fault == "damage":
                ended = self._damaged(task, command, self.random.choice(files))
            else:
                ended = self._disturbed(command, fault)
            if ended is not None:
                self._note(ended, fault)
                if ended.code == 0:
                    return True
                if "finish it with --resume" in ended.said:
                    self._until_done(task, task.train, ("log",))
        self._lose("command that never succeeds", f"{task.run.name}: {ended}")
        return False

    def _disturbed(self, command: Sequence[str], fault: str) -> Ended | None:
        if fault != "none":
            self.figures.faults[fault] += 1
        limits = Limits()
        if fault == "full disk":
            room = self.random.randrange(2 * CHECKPOINT)
            self.disk.leave(room)
            limits = Limits(file_size=None if self.disk.limited else 4096 + room // 2)
        if fault == "no memory":
            limits = Limits(more_memory=self.random.randrange(8 << 20))
        # A fresh process has its start to survive, too.
        fresh = fault in ("kill", "terminate", "none") and self.random.random() < 0.05
        child = self._child(command, limits=limits, fresh=fresh)
        within = (10 if fresh else 1.1) * self._seconds[command[0]]
        if fault in ("kill", "terminate", "stop", "rival"):
            time.sleep(self.random.uniform(0, within))
        if fault == "rival":
            rival = self._child(command, name="rival")
            self._note(rival.wait(PATIENCE_S), "rival")
        if fault == "tide":
            self._tide()
        if fault == "kill":
            child.send(signal.SIGKILL)
        if fault == "terminate":
            child.send(signal.SIGTERM)
        if fault == "stop":
            child.send(signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 0.5))
            child.send(signal.SIGCONT)
        return self._survey(child.wait(PATIENCE_S))

    def _tide(self) -> None:
        """Fill the disk and empty it again, a few times, while the process is at work."""
        for _ in range(self.random.randint(1, 6)):
            for room in (self.random.randrange(CHECKPOINT), NEARLY_FULL):
                self.disk.leave(room)
                time.sleep(self.random.uniform(0, 0.1))

    def _damaged(self, task: Task, command: Sequence[str], kind: str) -> Ended | None:
        """Damage a file, and see whether the next attempt, with all it needs, notices."""
        expected = DAMAGES[kind](task, self.random)
        if expected is None:
            return None  # there is nothing yet that could be damaged
        self.figures.faults[f"damaged {kind}"] += 1
        self._torn_lines += kind == "records"
        child = self._child(command, group=MemoryGroup(None))
        ended = self._survey(child.wait(PATIENCE_S))
        if ended is not None and expected not in ended.said:
            self._lose("unnoticed damage", f"{kind}: {ended}")
        if kind == "state":
            task.state.unlink()  # as the message says
        return ended

    def _child(
        self,
        command: Sequence[str],
        *,
        name: str = "child",
        group: MemoryGroup | None = None,
        limits: Limits | None = None,
        fresh: bool = False,
    ) -> Child:
        self.figures.attempts += 1
        output = self.desk / f"{name}.out"
        # The group has room for what a process adds to this one, not for a whole one.
        group = MemoryGroup(None) if fresh else group or self.group
        return Child(upright, command, output=output, group=group, limits=limits, fresh=fresh)

    def _survey(self, ended: Ended | None) -> Ended | None:
        if ended is None:
            self._lose("hang", "")
        return ended

    def _note(self, ended: Ended | None, fault: str) -> None:
        if ended is None:
            return
        killed = {-signal.SIGKILL: "killed", -signal.SIGTERM: "terminated"}
        words = {0: "done", 2: "one line of error", 130: "stopped with a checkpoint", **killed}
        self.figures.ends[words.get(ended.code, f"status {ended.code}")] += 1
        if "Traceback" in ended.said and fault != "no memory":
            self._lose("traceback", ended.said)
        if ended.code not in words and fault != "no memory":
            self._lose("unexpected end", str(ended))

    def _check(self, task: Task, calm: Task) -> None:
        """Compare a run with the undisturbed one, and look at what lies around."""
        if task.newest() != calm.newest():
            self._lose("run with other bits", task.run.name)
        if len(list((task.run / "checkpoints").iterdir())) != 4:
            self._lose("left-over checkpoint", str(list((task.run / "checkpoints").iterdir())))
        if left := list(self.disk.folder.rglob("*.part")):
            self._lose("half-written file", str(left))
        steps = [json.loads(line)["step"] for line in (task.run / "log.jsonl").open()]
        if steps != list(range(2, 31, 2)):
            self._lose("line of the log", str(steps))
        found = read(task.records)
        if len(found.damaged) != self._torn_lines:
            self._lose("torn line of the records", str(found.damaged))
        (expected,) = read(calm.records).records
        times = Counter(record.seed for record in found.records)
        for number in range(self.figures.cycles):
            if times[number] != 1:
                self._lose("record", f"of run {number}: {times[number]} times")
        if [_result(record) for record in found.records if record.seed == task.number] != [
            _result(expected)
        ]:
            self._lose("record with another result", task.run.name)

    def _lose(self, what: str, about: str) -> None:
        self.figures.lost[what] += 1
        print(f"LOST in cycle {self.figures.cycles}: {what}: {about}", file=sys.stderr, flush=True)


def _result(record: Record) -> object:
    return record.key, record.measured, record.method, record.steps, record.images


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    # One thread: sums in another order would be other bits, and threads do not survive a fork.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as desk,
        small_disk(Path(desk), 24) as disk,
        memory_group(options.memory_mb, options.ballast_mb) as group,
    ):
        soak = Soak(Path(desk), disk, group, options.seed)
        soak.warm_up()
        began = time.monotonic()
        while time.monotonic() < began + 60 * options.minutes:
            soak.cycle()
        at_limit = group.times_at_limit()
    figures = soak.figures
    about = {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "disk": disk.kind,
        "times at the limit of memory": at_limit,
        "cycles": figures.cycles,
        "processes": figures.attempts,
    }
    counts = {"faults": figures.faults, "ends": figures.ends, "results lost": figures.lost}
    rows = [[name, str(value)] for name, value in about.items()]
    for title, counter in counts.items():
        rows += [[title, str(counter.total())]]
        rows += [[f"  {name}", str(count)] for name, count in counter.most_common()]
    print_table("soak", ["", "figure"], rows)
    write_json(options.json, about | {name: dict(each) for name, each in counts.items()})
    return int(figures.lost.total() > 0)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Count what is lost where little goes well.")
    add = parser.add_argument
    add("--minutes", type=float, default=60.0)
    add("--seed", type=int, default=0, help="of the faults; moments depend on the machine, too")
    add("--memory-mb", type=int, default=108, help="of all processes together, beyond a fork")
    add("--ballast-mb", type=int, default=64, help="of which so much is taken already")
    add("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
