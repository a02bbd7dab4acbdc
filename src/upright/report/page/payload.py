"""The data that the page's script reads: images and answers, packed, and points of the chart."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from upright.report.data import RuntimePoint
from upright.report.figures import find_example
from upright.report.saved import Array, Exhibition, SavedModel
from upright.report.titles import titles

__all__ = ["payload"]


def payload(
    exhibitions: Sequence[Exhibition], points: Sequence[RuntimePoint], known: Collection[str]
) -> dict[str, Any]:
    """Give what JSON holds; arrays are base64 of their bytes, the lowest byte first.

    ``known`` are the ids of the records on the page, to which models may link.
    """
    return {
        "exhibitions": [_exhibition(each, known) for each in exhibitions],
        "runs": [_run(point) for point in points],
    }


def _exhibition(exhibition: Exhibition, known: Collection[str]) -> dict[str, Any]:
    shown = exhibition.shown
    example = find_example(exhibition)
    named = zip(exhibition.models, titles(exhibition.models), strict=True)
    return {
        "dataset": shown.dataset,
        "split": shown.split,
        "classes": list(shown.classes),
        "shape": list(shown.images.shape),
        "images": _packed(shown.images, np.uint8),
        "labels": shown.labels[: len(shown.images)].tolist(),
        "places": shown.places[: len(shown.images)].tolist(),
        "dx": _plain(shown.dx_px),
        "dy": _plain(shown.dy_px),
        "angle": _plain(shown.angle_degrees),
        "first": 0 if example is None else example.image,
        "models": [_model(model, title, known) for model, title in named],
    }


def _model(model: SavedModel, title: str, known: Collection[str]) -> dict[str, Any]:
    wide = model.predicted.dtype.itemsize > 2
    return {
        "title": title,
        "name": model.name,
        "attack": model.attack,
        "measured": model.measured,
        "images": len(model.natural_correct),
        "record": model.record if model.record in known else None,
        "wide": wide,
        "predicted": _packed(model.predicted, np.uint32 if wide else np.uint16),
        "confidence": _packed(model.confidence, np.uint8),
        "natural": model.natural.tolist(),
        "worst": model.worst.tolist(),
    }


def _run(point: RuntimePoint) -> dict[str, Any]:
    return {
        "dataset": point.dataset,
        "method": point.method,
        "family": point.family,
        "tries": point.tries or 0,
        "setting": point.setting,
        "seconds": 3600 * point.hours,
        "grid": point.grid.mean,
        "stderr": point.grid.stderr,
        "natural": point.natural.mean,
        "seeds": point.grid.n,
        "hardware": point.hardware,
    }


def _packed(array: Array, kind: type[np.generic]) -> str:
    little = np.dtype(kind).newbyteorder("<")
    return base64.b64encode(np.ascontiguousarray(array, little).tobytes()).decode()


def _plain(axis: Array) -> list[float]:
    """Float32 as short decimals: 1.5, not 1.4999999."""
    return [float(f"{value:.6g}") for value in axis]
