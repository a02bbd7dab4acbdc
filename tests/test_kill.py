"""Runs killed at random moments end, once resumed, with the weights of the unbroken run.

The moments are drawn from a fixed seed: in the start-up, among the steps, and while a checkpoint is
being written. What lies in the folder after each kill says where it hit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tiny_runs import colours, names, newest, save_as_npz
from upright.cli import main
from upright.train import RunDirectory

PATIENCE = 120.0  # seconds; for a machine that has much else to do


@dataclass(frozen=True)
class Command:
    """``upright train`` on small images, with a checkpoint after every other step."""

    folder: Path
    steps: int

    def arguments(self, out: str) -> list[str]:
        return [
            *("train", "KL(rob, Wo-2)", "--data", f"npz:{self.folder / 'colours.npz'}"),
            *("--model", "convnet0.25", "--steps", str(self.steps), "--batch", "11"),
            *("--checkpoint-every", "2", "--log-every", "5", "--device", "cpu"),
            *("--out", str(self.folder / out), "--resume"),
        ]

    @contextmanager
    def running(self, out: str) -> Iterator[subprocess.Popen[bytes]]:
        # As in this process, see conftest.py: sums in another order would be other bits.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "upright", *self.arguments(out)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def files(run: Path) -> set[str]:
    return set(names(run)) if (run / "checkpoints").is_dir() else set()


def wait_for_writing(process: subprocess.Popen[bytes], run: Path, *, at_most: float) -> bool:
    """Wait until a process begins to write a checkpoint, but not longer than so many seconds."""
    before, end = files(run), time.monotonic() + at_most
    while time.monotonic() < end:
        if any(name.startswith(".") for name in files(run) - before):
            return True
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.0002)
    return False


def kill(process: subprocess.Popen[bytes], run: Path, moment: str, rng: random.Random) -> str:
    """Kill a run at such a moment, and say where it was hit."""
    before = files(run)
    if moment == "start-up":
        wait_for_writing(process, run, at_most=rng.uniform(0, 4))
    else:
        for _ in range(rng.randint(1, 10)):
            assert wait_for_writing(process, run, at_most=PATIENCE), "no checkpoint in a long time"
        time.sleep(rng.uniform(0, 0.02 if moment == "steps" else 0.002))
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    return where_it_hit(files(run), before)


def where_it_hit(after: set[str], before: set[str]) -> str:
    new = after - before
    if any(name.startswith(".") for name in new):
        return "while a file was written"
    if any(Path(name).with_suffix(".json").name not in after for name in new):
        return "between weights and digest"
    return "among the steps" if new else "in the start-up"


def check(tmp_path: Path, *, steps: int, moments: list[str], seed: int) -> Counter[str]:
    """Kill and resume a run once for each moment, and compare its end with the unbroken run's."""
    save_as_npz(colours(), tmp_path / "colours.npz")
    command, rng = Command(tmp_path, steps), random.Random(seed)
    assert main(command.arguments("unbroken")) == 0
    killed, hits = tmp_path / "killed", Counter[str]()
    for moment in moments:
        with command.running("killed") as process:
            hits[kill(process, killed, moment, rng)] += 1
    checkpoint = RunDirectory.open(killed).load()
    assert checkpoint is not None
    assert checkpoint.step < steps
    with command.running("killed") as process:
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, b"")
    assert newest(killed) == newest(tmp_path / "unbroken")
    assert len(names(killed)) == 4  # the last two checkpoints, and nothing half done
    return hits


def test_a_run_killed_a_few_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    hits = check(tmp_path, steps=150, moments=["steps", "start-up", "writing"], seed=0)
    assert hits.total() == 3


@pytest.mark.slow
def test_a_run_killed_at_24_moments_ends_with_the_same_bits(tmp_path: Path) -> None:
    rng = random.Random(1)
    moments = [*["start-up"] * 4, *["steps"] * 10, *["writing"] * 10]
    rng.shuffle(moments)
    hits = check(tmp_path, steps=1000, moments=moments, seed=2)
    print(", ".join(f"{count} {place}" for place, count in hits.items()))
    assert hits.total() == 24
    assert hits["while a file was written"] > 0
