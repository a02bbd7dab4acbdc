"""A data set, a network and a recipe so small that a training run takes a fraction of a second."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from upright.cli import main
from upright.data import LabelledImages
from upright.models import NETWORKS, network, network_forms
from upright.train import Recipe, TrainedRun, train

Mishaps = dict[int, Callable[[Tensor], Tensor]]
"""What happens to the images of a training pass of a run, by its number, counted from 1."""


Call = Callable[..., tuple[int, str, str]]
"""The command: its arguments to exit code, stdout and stderr."""


def command_beside_colours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Give the command in a folder with ``colours.npz``."""
    monkeypatch.chdir(folder)
    save_as_npz(colours(), folder / "colours.npz")

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@cache
def colours(count: int = 48, side: int = 8) -> LabelledImages:
    """Noisy images of which the brightest colour, red, green or blue, is the class."""
    generator = torch.Generator().manual_seed(count)
    labels = torch.arange(count) % 3
    images = torch.randint(160, (count, 3, side, side), generator=generator)
    images[torch.arange(count), labels] += 60
    return LabelledImages(images.to(torch.uint8), labels, ("red", "green", "blue"))


def tiny_recipe(**changes: Any) -> Recipe:
    """A run of 12 steps, three epochs of ``colours`` that leave out four images each."""
    fields = {
        "objective": "KL(rob, Wo-2)",
        "data": "colours",
        "model": "tiny",
        "steps": 12,
        "batch": 11,
        "learning_rate": 0.05,
    }
    return Recipe(**{**fields, **changes})


class WithMishaps(nn.Module):
    """Passes images on, after the mishap of this training pass, if any; searches do not count."""

    def __init__(self, mishaps: Mishaps) -> None:
        super().__init__()
        self.mishaps, self.passes = mishaps, 0

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return images
        self.passes += 1
        return self.mishaps.get(self.passes, lambda same: same)(images)


def build_tiny(mishaps: Mishaps, dropout: str | None, *, classes: int, channels: int) -> nn.Module:
    return nn.Sequential(
        WithMishaps(mishaps),
        nn.Conv2d(channels, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3 if dropout else 0.0),
        nn.Linear(16, classes),
    )


def register_tiny(monkeypatch: pytest.MonkeyPatch) -> Mishaps:
    """Make ``tiny`` and ``tiny-dropout`` known for one test, and give what is to happen to them."""
    network_forms()  # once all networks are known: those first met later would be lost again
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))
    mishaps: Mishaps = {}
    network("tiny", r"tiny(-dropout)?")(partial(build_tiny, mishaps))
    return mishaps


def sending(number: signal.Signals) -> Callable[[Tensor], Tensor]:
    """A mishap: the process gets a signal in the middle of a step."""

    def send(images: Tensor) -> Tensor:
        signal.raise_signal(number)
        return images

    return send


def fail(_images: Tensor) -> Tensor:
    """A mishap: the step does not come to its end."""
    raise ZeroDivisionError


def tiny_run(path: Path, *, resume: bool = False, **changes: Any) -> TrainedRun:
    """Follow the recipe, with these changes, on ``colours``."""
    options = {"checkpoint_every": 3, "log_every": 2}
    recipe = tiny_recipe(**changes)
    return train(recipe, path, data=colours(), resume=resume, **options)


def lines(run: Path) -> list[dict[str, float]]:
    """The log of a run."""
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def newest(run: Path) -> bytes:
    """The newest checkpoint of a run, as it lies on the disk."""
    return max((run / "checkpoints").glob("*.safetensors")).read_bytes()


def names(run: Path) -> list[str]:
    """All that lies in a run's folder of checkpoints."""
    return sorted(file.name for file in (run / "checkpoints").iterdir())


def save_as_npz(data: LabelledImages, path: Path) -> None:
    """Write a file that ``npz:FILE`` reads, with the same images for training and for testing."""
    arrays = {"images": data.images.numpy(), "labels": data.labels.numpy()}
    splits = {f"{split}_{name}": a for split in ("train", "test") for name, a in arrays.items()}
    np.savez(path, **splits)
