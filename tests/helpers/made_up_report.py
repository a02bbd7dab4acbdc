"""Made-up records and arrays for the report: no network was trained, the numbers are invented."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from made_up_records import made_up_record
from upright.record_files import append
from upright.records import Record
from upright.report.exhibition import SavedModel, Shown, record_id
from upright.report.saved import write_saved
from upright.space import Space
from upright.train import Recipe

CLASSES = ("disc", "ring", "</script>")
"""The last one would end the page's data if it were not escaped."""


def record(method: str, *, seed: int = 0, nat: float, grid: float, seconds: float) -> Record:
    """A record that looks like one of a run."""
    recipe = Recipe(objective=method, data="glyphs", model="convnet", steps=1000, seed=seed)
    measured = {"nat": nat, "grid-775": grid}
    return made_up_record(recipe, measured, dataset="made-up", train_seconds=seconds, images=200)


def hash_of(text: str) -> int:
    """The same in every process, unlike ``hash``."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


RECORDS = (
    record("std", nat=0.97, grid=0.11, seconds=60),
    record("std*", nat=0.95, grid=0.52, seconds=70),
    record("AT(rob, Wo-10)", nat=0.96, grid=0.71, seconds=200),
    record("AT(rob, Wo-20)", nat=0.955, grid=0.73, seconds=390),
    record("KL(rob, Wo-10)", nat=0.94, grid=0.80, seconds=260),
    record("KL(rob, Wo-10)", seed=1, nat=0.95, grid=0.82, seconds=250),
    record("KL(rob, Wo-10; λ=2)", nat=0.945, grid=0.65, seconds=310),
    record("KL(rob, Wo-10; λ=32)", nat=0.91, grid=0.75, seconds=330),
    record("KL(nat, rnd)", nat=0.94, grid=0.70, seconds=120),
    record("KL(nat, rnd; λ=1)", nat=0.95, grid=0.60, seconds=120),
)


SPACE = "shift(2px, 3px) rotate(30)"


def shown(
    space: str = SPACE,
    counts: tuple[int, ...] = (3, 5, 7),
    *,
    images: int = 7,
    side: int = 12,
    seed: int = 0,
) -> Shown:
    """Blobs of colour, and a grid of 3 x 5 x 7 poses, so that a mix-up of axes shows."""
    box = Space.of(space)
    pairs = zip(box.axes, counts, strict=True)
    grid = {axis.name: np.linspace(axis.low, axis.high, n, dtype=np.float32) for axis, n in pairs}
    draw = np.random.default_rng(seed)
    coarse = draw.integers(0, 256, (images, 3, side // 3, side // 3), dtype=np.uint8)
    return Shown(
        dataset="made-up",
        split="test",
        classes=CLASSES,
        data_digest={"test_images": "0" * 64},
        images=coarse.repeat(3, 2).repeat(3, 3),
        canvas=0,
        labels=draw.integers(0, 3, 20),
        places=draw.permutation(200)[:20],
        space=box,
        grid=grid,
        along=max(grid, key=lambda name: len(grid[name])),
    )


def model(where: Shown, name: str, of: Record | None = None, *, errs: float = 0.3) -> SavedModel:
    """A model whose answers are drawn at random."""
    draw = np.random.default_rng(hash_of(name))
    images = len(where.images)
    grid = where.counts
    labels = where.labels[:images].reshape(-1, *[1] * len(grid))
    wrong = draw.random((images, *grid)) < errs
    predicted = np.where(wrong, (labels + draw.integers(1, 3, wrong.shape)) % 3, labels)
    middle = tuple(count // 2 for count in grid)
    errs_along = draw.random((20, len(where.grid[where.along]))) < errs
    return SavedModel(
        name=name,
        method=None if of is None else of.method,
        seed=None if of is None else of.seed,
        attack="grid-775",
        measured={"nat": 0.9, "grid-775": 1 - errs} if of is None else of.measured,
        record=None if of is None else record_id(of),
        origin={"commit": "made up"},
        predicted=predicted.astype(np.uint8),
        confidence=draw.integers(90, 256, wrong.shape).astype(np.uint8),
        natural=predicted[:, *middle].astype(np.uint8),
        natural_confidence=draw.integers(90, 256, images).astype(np.uint8),
        worst=wrong.reshape(images, -1).argmax(1).astype(np.int64),
        predicted_along=np.where(errs_along, 0, where.labels[:, None]).astype(np.uint8),
        natural_correct=draw.random(200) < 0.95,
        grid_correct=draw.random(200) < 1 - errs,
    )


def results(folder: Path) -> Path:
    """A folder as evaluations leave it: records, and the arrays of two models."""
    for each in RECORDS:
        append(folder / "made-up.jsonl", each)
    images = shown()
    write_saved(folder / "saved", images, model(images, "runs/std", RECORDS[0], errs=0.6))
    write_saved(folder / "saved", images, model(images, "runs/kl", RECORDS[4], errs=0.2))
    return folder
