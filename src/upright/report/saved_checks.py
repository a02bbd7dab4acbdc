"""What saved arrays must be, so that whatever draws them can rely on it.

A digest tells that a file is as it was saved, but whoever can write the file can write the digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from upright.families import Axis
from upright.report.exhibition import SavedModel, Shown
from upright.warp import warp

__all__ = ["check_model", "check_shown"]

_FARTHEST = 1e6
"""Degrees, or of a plain number."""
_FARTHEST_LOG = 10.0
"""Of a factor, which is then at most 22,026."""
_FARTHEST_SIDES = 10
"""Pixels, as a multiple of the image's longer side: a blur looks three times as far."""


def check_shown(shown: Shown) -> None:
    """Check kinds, sizes and ranges of what is shown."""
    texts = (shown.dataset, shown.split, *shown.classes, *shown.data_digest.values())
    _check(all(isinstance(text, str) for text in texts), "names and digests must be text")
    _check(_is_count(shown.canvas), f"no canvas of {shown.canvas!r} pixels can be")
    _check_kind("images", shown.images, np.uint8, 4)
    _check(shown.images.shape[1] in (1, 3, 4), "images have one, three or four channels")
    for name in ("labels", "places"):
        _check_kind(name, getattr(shown, name), np.int64, 1)
        _check(bool((getattr(shown, name) >= 0).all()), f"{name} are counted from 0")
    fits = len(shown.labels) == len(shown.places) >= len(shown.images)
    _check(fits, "labels and places are of other images")
    for axis in shown.space.axes:
        _check_axis(axis, shown.grid[axis.name], max(shown.images.shape[-2:]))
    _check(shown.along in shown.grid, f"no axis is called {shown.along!r}")
    _check(shown.view is None or _is_count(shown.view), f"no view can be {shown.view!r}")
    image = torch.as_tensor(shown.images[:1]).float() / 255
    warp(image, shown.space.zeros(1), view=shown.view)  # it says why not


def _check_axis(axis: Axis, values: NDArray[Any], side: int) -> None:
    _check(axis.unit != "%", f"the limits of {axis.name} must be in pixels")
    farthest = {"px": _FARTHEST_SIDES * side, "factor": _FARTHEST_LOG}.get(axis.unit, _FARTHEST)
    _check(axis.reach <= farthest, f"{axis.name} goes too far: {axis.in_words}")
    _check_kind(axis.name, values, np.float32, 1)
    rises = bool((np.abs(values) <= farthest).all() and (np.diff(values) >= 0).all())
    _check(rises, f"{axis.name} is no axis of finite numbers that rise")


def check_model(shown: Shown, model: SavedModel) -> None:
    """Check kinds, sizes and ranges of a model's answers to what is shown."""
    _check_about(model)
    explored = len(shown.images)
    grid = shown.counts
    shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
        "predicted": (np.unsignedinteger, (explored, *grid)),
        "confidence": (np.uint8, (explored, *grid)),
        "natural": (np.unsignedinteger, (explored,)),
        "natural_confidence": (np.uint8, (explored,)),
        "worst": (np.int64, (explored,)),
        "predicted_along": (np.unsignedinteger, (len(shown.labels), len(shown.grid[shown.along]))),
    }
    for name, (kind, shape) in shapes.items():
        array = getattr(model, name)
        _check_kind(name, array, kind, len(shape))
        _check(array.shape == shape, f"{name} has shape {array.shape}, not {shape}")
    _check_others(model)
    poses = int(np.prod(grid))
    _check(bool(((model.worst >= 0) & (model.worst < poses)).all()), "worst names no pose")
    for name in ("natural_correct", "grid_correct"):
        _check_kind(name, getattr(model, name), np.bool_, 1)
    fits = len(model.natural_correct) == len(model.grid_correct) > int(shown.places.max())
    _check(fits, "natural_correct and grid_correct are of other images")


def _check_others(model: SavedModel) -> None:
    others, sure = model.others, model.others_confidence
    _check((others is None) == (sure is None), "others and others_confidence belong together")
    if others is None or sure is None:
        return
    several = 1 + model.predicted.ndim
    _check_kind("others", others, np.unsignedinteger, several)
    _check_kind("others_confidence", sure, np.uint8, several)
    fits = others.shape == sure.shape and others.shape[:-1] == model.predicted.shape
    _check(fits, f"others have shapes {others.shape} and {sure.shape}")


def _check_about(model: SavedModel) -> None:
    texts = (model.name, model.attack)
    _check(all(isinstance(text, str) for text in texts), "names must be text")
    known = (model.method, model.record)
    _check(all(text is None or isinstance(text, str) for text in known), "names must be text")
    _check(model.seed is None or _is_count(model.seed), f"no seed can be {model.seed!r}")
    _check(isinstance(model.measured, Mapping), "no accuracies are there")
    for name in ("nat", model.attack):
        _check(name in model.measured, f"no accuracy of {name!r} is there")
    for name, value in model.measured.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        _check(number and 0 <= value <= 1, f"{name} is {value!r}, but must be a fraction")


def _check_kind(name: str, array: NDArray[Any], kind: type[np.generic], dimensions: int) -> None:
    fits = np.issubdtype(array.dtype, kind) and array.ndim == dimensions and array.size > 0
    _check(fits, f"{name} is {array.dtype} of shape {array.shape}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check(right: bool, wrong: str) -> None:
    if not right:
        raise ValueError(wrong)
