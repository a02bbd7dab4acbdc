"""What the ordeal kills: training, evaluating, fetching a data set, appending records.

Each job can be begun again in the folder where it was killed, and has an outcome that must be the
one of a job that was never disturbed. The names of all files in the folder must be the same, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from hardship import warm_up
from soak_task import Task, glyphs

from upright import record_files
from upright.cli import main as upright
from upright.data import store
from upright.data.download import Patience, md5_of
from upright.data.fetch import fetch
from upright.data.known import CIFAR10, Archive, KnownSet
from upright.report.saved import read_saved

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "fuzz"), str(ROOT / "tests" / "helpers")]
from results import example_record

from fickle_server import FickleServer
from tiny_sets import tiny, write_pickles

__all__ = ["Job", "all_jobs"]

RECORDS = 60
MOODS = ("good", "good", "slow", "cut", "no-range", "no-length", "cut-no-range", "busy", "altered")
PATIENCE = Patience(timeout_s=2.0, tries=50, pause_s=0.01)


@dataclass(frozen=True)
class Job:
    """Something to be killed and begun again."""

    name: str
    command: Callable[[Sequence[str]], int]
    arguments: Callable[[Path], list[str]]
    outcome: Callable[[Path], object]
    is_upright: bool = False
    """Whether the arguments are those of the command line, which a fresh process knows, too."""


@contextmanager
def all_jobs(desk: Path, rng: Random) -> Iterator[list[Job]]:
    """Make all jobs, which share a trained run and a server on this machine."""
    data = f"npz:{glyphs(desk)}"
    task = Task(0, "KL(rob, Wo-2)", data, desk / "trained", desk / "unused")
    warm_up(upright, (task.train, _evaluate(task, desk / "warm")), desk)
    with _published(desk, rng) as known:
        yield [
            Job("training", upright, partial(_train, data), _trained, is_upright=True),
            Job("evaluation", upright, partial(_evaluate, task), _evaluated, is_upright=True),
            Job("fetch", partial(_fetch, known), _here, partial(_fetched, known)),
            Job("records", _append, _here, _appended),
        ]


def _here(folder: Path) -> list[str]:
    return [str(folder)]


def _train(data: str, folder: Path) -> list[str]:
    return Task(7, "KL(rob, Wo-2)", data, folder / "run", folder / "unused").train


def _trained(folder: Path) -> object:
    log = (folder / "run" / "log.jsonl").read_text().splitlines()
    files = sorted((folder / "run" / "checkpoints").glob("*.safetensors"))
    return files[-1].read_bytes(), [json.loads(line)["step"] for line in log]


def _evaluate(task: Task, folder: Path) -> list[str]:
    here = replace(task, records=folder / "records.jsonl").evaluate
    here[here.index("--state") + 1] = str(folder / "state")
    return [*here, "--json", str(folder / "answers.json"), "--save", str(folder / "saved")]


def _evaluated(folder: Path) -> object:
    """What was recorded, and the answers on every image; not what it took to get them."""
    found = record_files.read(folder / "records.jsonl")
    told = [(each.key, each.measured, each.images) for each in found.records]
    (saved,) = read_saved(folder / "saved").models
    names = [
        each.name for each in fields(saved) if isinstance(getattr(saved, each.name), np.ndarray)
    ]
    answers = {name: getattr(saved, name).tolist() for name in names}
    classes = json.loads((folder / "answers.json").read_text())["per_class"]
    return told, len(found.damaged), answers, classes


def _append(arguments: Sequence[str]) -> int:
    """Append the records that no earlier attempt has been told to be on the disk."""
    folder = Path(arguments[0])
    with (folder / "acknowledged").open("ab", buffering=0) as acknowledged:
        for seed in range(acknowledged.tell(), RECORDS):
            record = replace(example_record(), seed=seed)
            record_files.append(folder / "records.jsonl", record, once=True)
            acknowledged.write(b".")
    return 0


def _appended(folder: Path) -> object:
    found = record_files.read(folder / "records.jsonl")
    return [record.seed for record in found.records], len(found.damaged)


def _fetch(known: KnownSet, arguments: Sequence[str]) -> int:
    """As the command does it, but for a set of few images; wrong files are fetched again."""
    for _ in range(20):
        try:
            fetch(known, root=Path(arguments[0]) / "root", patience=PATIENCE)
        except ValueError as error:
            print(error, file=sys.stderr)
        else:
            return 0
    return 2


def _fetched(known: KnownSet, folder: Path) -> object:
    root = folder / "root"
    found = [store.open_split(known, split, root=root) for split in ("train", "test")]
    arrays = [(each.images.tobytes(), each.labels.tolist()) for each in found]
    return arrays, store.check(known, root=root).sound


@contextmanager
def _published(desk: Path, rng: Random) -> Iterator[KnownSet]:
    """A small set on a server that misbehaves, in a process of its own: threads and forks clash."""
    data, folder = tiny(CIFAR10), desk / "cifar-10-batches-py"
    folder.mkdir()
    write_pickles(data, folder)
    file = desk / "cifar-10-python.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    os.environ["no_proxy"] = "*"
    with FickleServer() as server:
        server.files["/x.tar.gz"] = file.read_bytes()
        server.moods = [*rng.choices(MOODS, k=50_000), "good"]
        process = os.fork()
        if not process:
            try:
                server.serve_forever()
            finally:
                os._exit(0)
        archive = Archive((f"{server.url}/x.tar.gz",), md5_of(file))
    try:
        yield replace(data.known, archives=(archive,))
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
