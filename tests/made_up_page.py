"""Made-up records and arrays for the report: no network was trained, the numbers are invented."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from upright.records import Record, append
from upright.report.saved import SavedModel, Shown, record_id, write_saved

CLASSES = ("disc", "ring", "</script>")
"""The last one would end the page's data if it were not escaped."""


def record(
    method: str, *, seed: int = 0, nat: float, grid: float, seconds: float, dataset: str = "made-up"
) -> Record:
    """A record that looks like one of a run."""
    return Record(
        dataset=dataset,
        method=method,
        model="convnet",
        seed=seed,
        recipe={"objective": method, "seed": seed},
        recipe_hash=f"{hash_of(method):012x}",
        evaluation={"split": "test"},
        measured={"nat": nat, "grid-775": grid},
        images=200,
        reported={},
        steps=1000,
        train_seconds=seconds,
        evaluate_seconds=1.0,
        forward_passes=1000,
        data_digest={"test_images": "0" * 64},
        commit="made up",
        versions={"upright": "made up"},
        hardware="made up",
        finished="2026-01-01T00:00:00+00:00",
    )


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


def shown(*, images: int = 7, side: int = 12, seed: int = 0) -> Shown:
    """Blobs of colour, and a grid of 3 x 5 x 7 poses, so that a mix-up of axes shows."""
    draw = np.random.default_rng(seed)
    coarse = draw.integers(0, 256, (images, 3, side // 3, side // 3), dtype=np.uint8)
    return Shown(
        dataset="made-up",
        split="test",
        classes=CLASSES,
        data_digest={"test_images": "0" * 64},
        images=coarse.repeat(3, 2).repeat(3, 3),
        labels=draw.integers(0, 3, 20),
        places=draw.permutation(200)[:20],
        dx_px=np.linspace(-2, 2, 3, dtype=np.float32),
        dy_px=np.linspace(-3, 3, 5, dtype=np.float32),
        angle_degrees=np.linspace(-30, 30, 7, dtype=np.float32),
    )


def model(where: Shown, name: str, of: Record | None = None, *, errs: float = 0.3) -> SavedModel:
    """A model whose answers are drawn at random."""
    draw = np.random.default_rng(hash_of(name))
    images = len(where.images)
    grid = (len(where.dx_px), len(where.dy_px), len(where.angle_degrees))
    labels = where.labels[:images, None, None, None]
    wrong = draw.random((images, *grid)) < errs
    predicted = np.where(wrong, (labels + draw.integers(1, 3, wrong.shape)) % 3, labels)
    turned = np.where(draw.random((20, grid[2])) < errs, 0, where.labels[:, None])
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
        natural=predicted[:, 1, 2, 3].astype(np.uint8),
        natural_confidence=draw.integers(90, 256, images).astype(np.uint8),
        worst=wrong.reshape(images, -1).argmax(1).astype(np.int64),
        turned=turned.astype(np.uint8),
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
