"""A run so small that it takes a second, and the entry of a zoo that was made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from upright.measure import add_to_zoo
from upright.train import Recipe, TrainedRun, train
from upright.zoo import Entry

__all__ = ["NAME", "copy_of", "train_small", "zoo_of"]

NAME = "glyphs/kl-rob-wo2-resnet8x0.25"


def train_small(folder: Path) -> TrainedRun:
    """Train long enough that the statistics of batch norms are no longer those of the start."""
    recipe = Recipe(
        objective="KL(rob, Wo-2)",
        data="glyphs",
        train_images=32,
        model="resnet8x0.25",
        steps=20,
        batch=8,
    )
    return train(recipe, folder)


def zoo_of(run: TrainedRun, folder: Path) -> Entry:
    """Pack a run, and measure it on twelve images."""
    return add_to_zoo(run.path, folder, attacks=("grid-3x3x3", "s-pgd"), limit=12)


def copy_of(entry: Entry, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """Copy an entry into a zoo that one test may damage, and in which commands look."""
    shutil.copytree(entry.folder, folder)
    monkeypatch.setenv("UPRIGHT_ZOO", str(folder))
    return Entry(folder, entry.name)
