"""A run of the soak: its commands and files, and how these files can be damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from upright.data import load_data

__all__ = ["DAMAGES", "Task", "glyphs"]


@dataclass(frozen=True)
class Task:
    """One run: its commands, and where its files are."""

    number: int
    objective: str
    data: str
    run: Path
    records: Path

    @property
    def state(self) -> Path:
        return self.run.with_name(f"{self.run.name}.state")

    @property
    def train(self) -> list[str]:
        return [
            *("train", self.objective, "--data", self.data, "--seed", str(self.number)),
            *("--model", "convnet0.25", "--steps", "30", "--batch", "8", "--device", "cpu"),
            *("--checkpoint-every", "3", "--log-every", "2", "--out", str(self.run), "--resume"),
        ]

    @property
    def evaluate(self) -> list[str]:
        return [
            *("evaluate", str(self.run), "--data", self.data, "--attack", "grid-3x3x3"),
            *("--attack", "wo-3", "--seed", "5", "--device", "cpu"),
            *("--state", str(self.state), "--record", str(self.records)),
        ]

    def newest(self) -> bytes | None:
        files = sorted((self.run / "checkpoints").glob("*.safetensors"))
        return files[-1].read_bytes() if files else None


def glyphs(folder: Path) -> Path:
    """The middle of glyphs, in a file: to draw them takes longer than to train on them."""
    train, test = load_data("glyphs", split="train", limit=64), load_data("glyphs", limit=1100)
    middle = np.s_[:, :, 8:24, 8:24]
    np.savez(
        folder / "glyphs.npz",
        train_images=train.images.numpy()[middle],
        train_labels=train.labels.numpy(),
        test_images=test.images.numpy()[middle],
        test_labels=test.labels.numpy(),
    )
    return folder / "glyphs.npz"


def _spoil(path: Path, rng: random.Random) -> None:
    """Cut a file off, or flip one of its bits."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        del content[rng.randrange(len(content)) :]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _damage_checkpoint(suffix: str) -> Callable[[Task, random.Random], str | None]:
    def damage(task: Task, rng: random.Random) -> str | None:
        digests = sorted((task.run / "checkpoints").glob("*.json"))
        if len(digests) < 2:
            return None
        _spoil(digests[-1].with_suffix(suffix), rng)
        return "is damaged"

    return damage


def _damage_log(task: Task, rng: random.Random) -> str | None:
    """Lines of the log are dropped in silence: the steps are taken again, or lost to the eye."""
    log = task.run / "log.jsonl"
    if not log.exists():
        return None
    with log.open("ab") as file:
        file.write(rng.randbytes(20).replace(b"\n", b""))
    return ""


def _damage_state(task: Task, rng: random.Random) -> str | None:
    if not task.state.exists():
        return None
    _spoil(task.state, rng)
    return "remove it"


def _tear_records(task: Task, rng: random.Random) -> str | None:
    """As a writer leaves it who dies in the middle of a line."""
    if task.records.exists() and not task.records.read_bytes().endswith(b"\n"):
        return None  # two pieces would be one line
    with task.records.open("ab") as file:
        file.write(b'{"version": 1, "dataset": "' + b"x" * rng.randrange(1, 50))
    return ""


DAMAGES: dict[str, Callable[[Task, random.Random], str | None]] = {
    "weights": _damage_checkpoint(".safetensors"),
    "digest": _damage_checkpoint(".json"),
    "log": _damage_log,
    "state": _damage_state,
    "records": _tear_records,
}
"""By kind of file: does the damage, and gives what the next command must say, or None where there
is no such file yet."""
