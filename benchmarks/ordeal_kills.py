"""Kills of the ordeal: SIGKILL at random moments, and every time begun again.

Half of the kills are aimed: they wait until a file appears, so that they hit while it is written.
After a few kills a job is left to its end, which must be that of an undisturbed one: the same
outcome, the same names in the folder and in that of temporary files.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from hardship import PATIENCE_S, Child, Ended, MemoryGroup
from ordeal_jobs import Job, all_jobs

__all__ = ["KillFigures", "kill_jobs", "kill_under_ray"]

MOST_IN_A_ROUND = 8
FRESH = 0.02
"""The part of processes that start from nothing, which takes seconds, and are killed in that."""
_fork = multiprocessing.get_context("fork")


@dataclass
class KillFigures:
    """How often what was killed, what came to its end, and what went wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    aimed: int = 0
    """Kills within 2 ms after a file appeared."""
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: KillFigures) -> None:
        self.kills += other.kills
        self.aimed += other.aimed
        self.ends += other.ends
        self.faults += other.faults
        self.examples += other.examples


def kill_jobs(kills: int, *, seed: int, lanes: int, limit_s: float) -> KillFigures:
    """Kill so many processes, in so many lanes side by side, within so many seconds."""
    began, whole = time.monotonic(), KillFigures()
    lives = []
    for lane in range(lanes):
        here, there = _fork.Pipe(duplex=False)
        mine = kills // lanes + (lane < kills % lanes)
        process = _fork.Process(target=_lane, args=(there, mine, f"{seed} {lane}", limit_s))
        process.start()
        there.close()
        lives.append((process, here))
    for process, here in lives:
        try:
            whole.add(here.recv())
        except EOFError:
            whole.faults["lane that died"] += 1
        process.join()
    whole.seconds = round(time.monotonic() - began, 1)
    return whole


def _lane(pipe: Connection, kills: int, seed: str, limit_s: float) -> None:
    # One thread: sums in another order would be other bits, and threads do not survive a fork.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    rng, end = random.Random(seed), time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="ordeal-") as name, all_jobs(Path(name), rng) as jobs:
        lane = Lane(Path(name), rng)
        for number, job in enumerate(jobs):
            lane.kill(job, kills // len(jobs) + (number < kills % len(jobs)), end)
    pipe.send(lane.figures)


class Lane:
    """Jobs that are killed one after the other."""

    def __init__(self, desk: Path, rng: random.Random) -> None:
        self.desk, self.rng, self.figures = desk, rng, KillFigures()

    def kill(self, job: Job, kills: int, end: float) -> None:
        """Begin a job in new folders until so many of its processes were killed, or time is up."""
        if not kills:
            return
        calm = self._folder("calm")
        ended = self._start(job, calm).wait(PATIENCE_S)
        if ended is None or ended.code:
            raise RuntimeError(f"an undisturbed {job.name} failed: {ended}")
        expected = job.outcome(calm), _names(calm)
        while self.figures.kills[job.name] < kills and time.monotonic() < end:
            folder = self._folder("killed")
            most = min(MOST_IN_A_ROUND, kills - self.figures.kills[job.name])
            finished = self._round(job, folder, most, ended.seconds)
            self._compare(job, folder, finished, expected)

    def _folder(self, name: str) -> Path:
        """An empty folder, with one for temporary files."""
        folder = self.desk / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        return folder

    def _start(self, job: Job, folder: Path, *, fresh: bool = False) -> Child:
        output, group = self.desk / "child.out", MemoryGroup(None)
        arguments = job.arguments(folder)
        return Child(job.command, arguments, output=output, group=group, fresh=fresh)

    def _round(self, job: Job, folder: Path, most: int, whole_s: float) -> Ended | None:
        """Kill a job a few times, then let it end; how it ended, or None where it hangs."""
        for _ in range(most):
            fresh = job.is_upright and self.rng.random() < FRESH
            child = self._start(job, folder, fresh=fresh)
            aimed = not fresh and self.rng.random() < 0.5
            seen = aimed and _wait_for_a_file(folder, whole_s)
            time.sleep(self.rng.uniform(0, 0.002 if seen else 4 if fresh else 0.8 * whole_s))
            child.send(signal.SIGKILL)
            ended = child.wait(PATIENCE_S)
            if ended is not None and ended.code != -signal.SIGKILL:
                return ended  # it was quicker
            self.figures.kills[job.name] += 1
            self.figures.aimed += seen
        return self._start(job, folder).wait(PATIENCE_S)

    def _compare(
        self, job: Job, folder: Path, ended: Ended | None, expected: tuple[object, set[str]]
    ) -> None:
        self.figures.ends[job.name] += 1
        if ended is None:
            return self._fault(job, "hang", "")
        if ended.code or "Traceback" in ended.said:
            return self._fault(job, "failed end", f"{ended.code}: {ended.said[-500:]}")
        outcome, names = expected
        if job.outcome(folder) != outcome:
            self._fault(job, "other outcome", str(folder))
        if left := _names(folder) - names:
            self._fault(job, "left behind", ", ".join(sorted(left)))
        if gone := names - _names(folder):
            self._fault(job, "missing", ", ".join(sorted(gone)))
        return None

    def _fault(self, job: Job, kind: str, about: str) -> None:
        self.figures.faults[f"{job.name}: {kind}"] += 1
        self.figures.examples.append(f"{job.name}: {kind}: {about}"[:300])
        print(f"FAULT {self.figures.examples[-1]}", file=sys.stderr, flush=True)


def _names(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*")}


def _walk(folder: Path) -> set[str]:
    """Names below a folder, some of which may be gone by now."""
    found: set[str] = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found.add(entry.path)
            if entry.is_dir(follow_symlinks=False):
                found |= _walk(Path(entry.path))
    return found


def _wait_for_a_file(folder: Path, at_most_s: float) -> bool:
    """Wait until something new lies in a folder, but not longer than so many seconds."""
    before, end = _walk(folder), time.monotonic() + at_most_s
    while time.monotonic() < end:
        if _walk(folder) - before:
            return True
        time.sleep(0.0005)
    return False


def kill_under_ray(kills: int, *, seed: int, limit_s: float) -> KillFigures:
    """Kill workers, nodes and drivers of a cluster, as ``cluster.py`` does."""
    began, figures = time.monotonic(), KillFigures()
    # A short name, for the sockets that Ray makes in it.
    own = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
    with own as name:
        file = Path(name) / "figures.json"
        command: Sequence[str | Path] = [
            *(sys.executable, Path(__file__).with_name("cluster.py"), "--json", file),
            *("--kills", str(kills), "--runs", str(2 + kills // 3), "--seed", str(seed)),
        ]
        environment = {**os.environ, "RAY_TMPDIR": name, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=limit_s)
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # it has a cluster to take down
        found = json.loads(file.read_text()) if file.exists() else {}
    figures.kills.update({f"Ray {who}": count for who, count in found.get("killed", {}).items()})
    figures.ends["Ray run"] = found.get("records", 0)
    for kind in ("lost", "twice", "unequal", "set_back"):
        figures.faults[f"Ray: {kind}"] = found.get(kind, 0)
    left = found.get("left_behind", ())
    figures.faults["Ray: left behind"] = len(left)
    figures.examples += [f"Ray: left behind: {each}" for each in left]
    figures.faults["Ray: no figures"] = int(not found)
    figures.faults = +figures.faults
    figures.seconds = round(time.monotonic() - began, 1)
    return figures
