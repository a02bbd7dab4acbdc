"""The data that the page's script reads: images and answers, packed, and points of the chart."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from upright.families import Axis, Family, Spatial
from upright.report.data import RuntimePoint
from upright.report.exhibition import Array, Exhibition, SavedModel, Shown, fooled_poses, titles
from upright.report.figures import find_example
from upright.report.page.photographs import Held, hold

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
    held, example = hold(shown), find_example(exhibition)
    named = zip(exhibition.models, titles(exhibition.models), strict=True)
    return {
        "dataset": shown.dataset,
        "title": exhibition.title,
        "split": shown.split,
        "classes": list(shown.classes),
        "shape": list(held.shape),
        "scale": held.scale,
        "seen": _seen(shown, held),
        "images": None if held.pixels is None else _packed(held.pixels, np.uint8),
        "pictures": held.pictures,
        "labels": shown.labels[: len(shown.images)].tolist(),
        "places": shown.places[: len(shown.images)].tolist(),
        "space": str(shown.space),
        "axes": [_axis(axis, shown.grid[axis.name]) for axis in shown.space.axes],
        "families": [_family(each, shown, held.scale) for each in shown.space.chain.families],
        "first": 0 if example is None else example.image,
        "models": [_model(shown, model, title, known) for model, title in named],
    }


def _seen(shown: Shown, held: Held) -> dict[str, Any]:
    """What models saw of an image, in pixels as they are held: where it lies, its centre."""
    window, scale = shown.seen, held.scale
    height, width = (max(1, round(side * scale)) for side in (window.height, window.width))
    row, column = ((middle + 0.5) * scale - 0.5 for middle in window.centre)
    top, left = round(window.top * scale), round(window.left * scale)
    # So that rounding never leads out of the image.
    top, left = min(top, held.shape[-2] - height), min(left, held.shape[-1] - width)
    part = {"top": top, "left": left, "height": height, "width": width}
    return part | {"centre": [row, column], "size": [side * scale for side in window.size]}


def _axis(axis: Axis, values: Array) -> dict[str, Any]:
    return {"name": axis.name, "unit": axis.unit, "high": axis.high, "values": _short(values)}


def _short(values: Iterable[float]) -> list[float]:
    """Float32 as short decimals: 1.5, not 1.4999999."""
    return [float(f"{value:.6g}") for value in values]


def _family(family: Family, shown: Shown, scale: float) -> dict[str, Any]:
    """A family by its name; one that is not the package's own with what lets a script apply it."""
    known = {"name": family.name, "axes": len(family.axes)}
    if type(family).__module__.startswith("upright.families."):
        return known
    if not isinstance(family, Spatial):
        return known | {"unseen": True}
    axes = [torch.as_tensor(shown.grid[axis.name]).double() for axis in family.axes]
    values = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    maps = family.inverse_matrix(values, shown.seen.size).nan_to_num()
    maps[:, :2, 2] *= scale
    maps[:, 2, :2] /= scale
    return known | {"maps": maps.flatten(1).tolist()}


def _model(shown: Shown, model: SavedModel, title: str, known: Collection[str]) -> dict[str, Any]:
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
        **_others(model, np.uint32 if wide else np.uint16),
        "natural": model.natural.tolist(),
        "worst": model.worst.tolist(),
        "smallest": _smallest(shown, model),
    }


def _others(model: SavedModel, kind: type[np.generic]) -> dict[str, Any]:
    """The likeliest classes after the first, where they were saved."""
    if model.others is None or model.others_confidence is None:
        return {}
    return {
        "others": _packed(model.others, kind),
        "others_confidence": _packed(model.others_confidence, np.uint8),
    }


def _smallest(shown: Shown, model: SavedModel) -> list[list[float] | None]:
    """For each image the smallest pose that fools it; None where nothing does."""
    found = fooled_poses(shown, model).smallest
    known = zip(found.pose.values.tolist(), found.size.isfinite().tolist(), strict=True)
    return [_short(values) if is_fooled else None for values, is_fooled in known]


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
