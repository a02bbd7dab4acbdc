"""Inputs of the ordeal: right ones, edited at random, for every target of the folder ``fuzz``.

Workers read them under the guard of the fuzzer. One that takes too long is killed, one that dies is
replaced, and the input that did it is a fault. Each input is drawn from the seed, the target's name
and its number alone, so that any of them can be made again.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import guard
from edits import edited
from guarded import AlteredError
from targets import TARGETS

__all__ = ["InputFigures", "input_of", "read_inputs"]

HANG_S = 10.0
STATED_BYTES = guard.MORE_BYTES
"""Of memory for one input. More than this is let happen, so that it is seen where a reader makes a
plain error of it, but not much more."""
CRASHES = Path("crashes")
_CHUNK = 20
_fork = multiprocessing.get_context("fork")


@dataclass
class InputFigures:
    """How many inputs were read, and what went wrong."""

    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    by_target: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chunk:
    """Some inputs of a target, by their numbers."""

    target: str
    first: int
    end: int


@cache
def _seeds(target: str) -> list[bytes]:
    return TARGETS[target].seeds()


def input_of(seed: int, target: str, number: int) -> bytes:
    """The input of that number; the same at any time, on any machine."""
    return edited(_seeds(target), random.Random(f"{seed} {target} {number}"))


class Worker:
    """A process that reads chunks of inputs, one after the other."""

    def __init__(self, seed: int, desk: Path) -> None:
        self.chunk: Chunk | None = None
        self.pipe, there = _fork.Pipe()
        self._at = _fork.RawValue("q", -1)
        self._seen, self._since = -1, time.monotonic()
        self.process = _fork.Process(target=_work, args=(there, self._at, seed, desk), daemon=True)
        self.process.start()
        there.close()

    @property
    def at(self) -> int:
        return int(self._at.value)

    def begin(self, chunk: Chunk) -> None:
        self.chunk, self._at.value = chunk, chunk.first
        self._since = time.monotonic()
        self.pipe.send(chunk)

    def hangs(self) -> bool:
        """Whether it is at the same input for too long; the guard's own alarm comes first."""
        if self.at != self._seen:
            self._seen, self._since = self.at, time.monotonic()
        return self.chunk is not None and time.monotonic() > self._since + 1.5 * HANG_S

    def stop(self) -> int | None:
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def read_inputs(count: int, *, seed: int, workers: int, limit_s: float) -> InputFigures:
    """Have so many inputs read within so many seconds, as evenly over targets as that allows."""
    torch.set_num_threads(1)
    for name in TARGETS:
        _seeds(name)
    fast = Path("/dev/shm")
    # Of this process: workers are killed, and clear nothing up.
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None, prefix="ordeal-") as desk:
        return _Reading(count, seed, workers, limit_s, Path(desk)).run()


class _Reading:
    def __init__(self, count: int, seed: int, workers: int, limit_s: float, desk: Path) -> None:
        self.desk = desk
        self.left, self.seed, self.limit_s = count, seed, limit_s
        self.figures, self.began = InputFigures(), time.monotonic()
        self.fair_s = limit_s * workers / len(TARGETS)
        self.given, self.seconds = dict.fromkeys(TARGETS, 0), dict.fromkeys(TARGETS, 0.0)
        self.chunk_inputs = min(_CHUNK, max(1, count // len(TARGETS)))
        self.again: list[Chunk] = []
        """What is left of chunks whose worker is gone."""
        self.workers = [Worker(seed, desk) for _ in range(workers)]

    def run(self) -> InputFigures:
        idle = list(self.workers)
        while True:
            while idle and (self.left or self.again) and not self._is_over():
                idle.pop().begin(self._next())
            busy = {worker.pipe: worker for worker in self.workers if worker.chunk is not None}
            if not busy:
                break
            ready = set(wait(list(busy), timeout=0.5))
            for pipe, worker in busy.items():
                if pipe in ready:
                    idle += self._collect(worker)
                elif worker.hangs():
                    idle += self._replace(worker, "hang")
        for worker in self.workers:
            worker.stop()
        self.figures.seconds = round(time.monotonic() - self.began, 1)
        return self.figures

    def _is_over(self) -> bool:
        return time.monotonic() > self.began + self.limit_s

    def _next(self) -> Chunk:
        """Of the target that had the fewest, unless it has had more than its share of the time."""
        if self.again:
            return self.again.pop()
        in_time = [name for name in TARGETS if self.seconds[name] < self.fair_s] or list(TARGETS)
        name = min(in_time, key=self.given.__getitem__)
        first, size = self.given[name], min(self.left, self.chunk_inputs)
        self.given[name] += size
        self.left -= size
        return Chunk(name, first, first + size)

    def _collect(self, worker: Worker) -> list[Worker]:
        """What a worker says of its chunk; one that died says nothing."""
        try:
            accepted, faults, seconds, is_swollen = worker.pipe.recv()
        except (EOFError, OSError):
            return self._replace(worker, "crash")
        chunk, worker.chunk = worker.chunk, None
        assert chunk is not None
        self._count(chunk, worker.at + 1 - chunk.first, seconds)
        self.figures.accepted += accepted
        for number, kind, what in faults:
            self._fault(chunk.target, number, kind, what)
        if is_swollen:
            return self._renew(worker, chunk)
        return [worker]

    def _replace(self, worker: Worker, kind: str) -> list[Worker]:
        chunk, at = worker.chunk, worker.at
        assert chunk is not None
        code = worker.stop()
        self._count(chunk, at + 1 - chunk.first, HANG_S)
        self._fault(chunk.target, at, kind, f"the process ended with {code}")
        return self._renew(worker, chunk)

    def _renew(self, worker: Worker, chunk: Chunk) -> list[Worker]:
        worker.stop()
        if worker.at + 1 < chunk.end:
            self.again.append(Chunk(chunk.target, worker.at + 1, chunk.end))
        self.workers.remove(worker)
        self.workers.append(Worker(self.seed, self.desk))
        return [self.workers[-1]]

    def _count(self, chunk: Chunk, inputs: int, seconds: float) -> None:
        self.figures.inputs += inputs
        self.figures.by_target[chunk.target] += inputs
        self.seconds[chunk.target] += seconds

    def _fault(self, target: str, number: int, kind: str, what: str) -> None:
        self.figures.faults[kind] += 1
        self.figures.examples.append(f"{kind}: {target} {number}: {what}"[:300])
        print(f"FAULT {self.figures.examples[-1]}", file=sys.stderr, flush=True)
        CRASHES.mkdir(exist_ok=True)
        file = CRASHES / f"{target}-ordeal-{self.seed}-{number}"
        file.write_bytes(input_of(self.seed, target, number))


def _work(pipe: Connection, at: object, seed: int, desk: Path) -> None:
    """Read chunk after chunk; in a process of its own."""
    guard.SECONDS, guard.MORE_BYTES = int(HANG_S), 4 * STATED_BYTES
    warnings.simplefilter("ignore")  # hostile input may well be suspicious
    folder, warm = Path(tempfile.mkdtemp(dir=desk)), set[str]()
    with _quiet():
        while True:
            chunk = pipe.recv()
            if chunk.target not in warm:
                guard.warm_up(TARGETS[chunk.target], folder / f"warm-{chunk.target}")
                warm.add(chunk.target)
            pipe.send(_read_chunk(chunk, folder, at, seed))


def _read_chunk(
    chunk: Chunk, folder: Path, at: object, seed: int
) -> tuple[int, list[tuple[int, str, str]], float, bool]:
    gc.collect()  # what the parent left over would make room for what is read
    began, before, accepted = time.monotonic(), sys.maxsize, 0
    faults: list[tuple[int, str, str]] = []
    for number in range(chunk.first, chunk.end):
        at.value = number  # type: ignore[attr-defined]
        _forget_the_most()
        before = min(before, _most_bytes())  # what was given back since counts, too
        try:
            data = input_of(seed, chunk.target, number)
            accepted += guard.attempt(TARGETS[chunk.target], data, folder)
        except BaseException as error:
            faults.append((number, _kind(error), f"{type(error).__name__}: {error}"))
        if (more := _most_bytes() - before) > STATED_BYTES:
            faults.append((number, "memory", f"{more >> 20} MiB"))
            return accepted, faults, time.monotonic() - began, True
    return accepted, faults, time.monotonic() - began, False


def _kind(error: BaseException) -> str:
    kinds = {guard.Hang: "hang", guard.Escape: "escape", AlteredError: "altered"}
    return "memory" if isinstance(error, MemoryError) else kinds.get(type(error), "traceback")


def _forget_the_most() -> None:
    """Let what this process had before not hide what it takes now, where Linux can do that.

    A fork begins with as much as its parent has, and much of that may be gone since.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _most_bytes() -> int:
    """The most memory that this process, or one that it started, has had since it forgot."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in whose) << 10


@contextmanager
def _quiet() -> Iterator[None]:
    """Libraries write about bad input straight to the terminal."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    with suppress(EOFError):  # whoever sent the chunks is gone
        yield
