"""Readers of the folder of `upright evaluate --save`: what is shown, and a model's answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from guard import Target
from safetensors import SafetensorError
from safetensors.numpy import load, save

from upright.report import saved
from upright.report.exhibition import SavedModel, Shown
from upright.report.figures import find_example
from upright.report.page.payload import payload
from upright.report.saved import read_saved, write_saved
from upright.space import Space

__all__ = ["TARGETS"]


def _model(data: bytes, folder: Path) -> None:
    _read_either(folder, lambda content: (_files()[0], content), data)


def _shown(data: bytes, folder: Path) -> None:
    """Images, with a model that answered to just these."""
    _read_either(
        folder, lambda content: (content, _forged(_files()[1], shown=content) or b""), data
    )


def _read_either(
    folder: Path, laid_out: Callable[[bytes], tuple[bytes, bytes]], data: bytes
) -> None:
    """Read a file as it is; where it is refused, with a digest that was made to fit."""
    forged = _forged(data)
    try:
        _use(folder, *laid_out(data))
    except ValueError:
        if forged is None:
            raise
        _use(folder, *laid_out(forged))


def _use(folder: Path, shown: bytes, model: bytes) -> None:
    """Do what the report does with it, but for drawing."""
    (folder / "shown.safetensors").write_bytes(shown)
    (folder / "model.safetensors").write_bytes(model)
    exhibition = read_saved(folder)
    example = find_example(exhibition)
    if example is not None:
        assert np.isfinite(example.moved()).all()
        assert example.answer(example.weak)
    json.dumps(payload([exhibition], [], ()), allow_nan=False)


def _forged(data: bytes, *, shown: bytes | None = None) -> bytes | None:
    try:
        arrays = load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
        about = metadata["about"]
        if shown is not None:
            about = json.dumps(json.loads(about) | {"shown": saved._digest(shown)})
    except (SafetensorError, ValueError, RecursionError, KeyError, TypeError):
        return None
    return save(arrays, metadata | {"about": about, "sha256": saved._digest_of(about, arrays)})


def _example() -> tuple[Shown, SavedModel]:
    axis = np.array([-1, 1], np.float32)
    shown = Shown(
        dataset="glyphs", split="test", classes=("a", "b"), data_digest={"test": "00"},
        images=np.arange(48, dtype=np.uint8).reshape(2, 3, 2, 4), canvas=0,
        labels=np.array([0, 1, 1]), places=np.array([2, 0, 1]), along="angle",
        space=Space.of("shift(3px) rotate(30)"),
        grid={"dx": axis, "dy": axis[:1], "angle": axis},
    )  # fmt: skip
    byte = np.zeros((2, 2, 1, 2), np.uint8)
    model = SavedModel(
        name="x", method="std", seed=1, attack="grid-2x1x2", measured={"nat": 1, "grid-2x1x2": 0.5},
        record=None, origin={"commit": None}, predicted=byte, confidence=byte + 200,
        natural=byte[:, 0, 0, 0], natural_confidence=byte[:, 0, 0, 0], worst=np.array([0, 3]),
        predicted_along=np.zeros((3, 2), np.uint8), natural_correct=np.ones(3, bool),
        grid_correct=np.zeros(3, bool),
    )  # fmt: skip
    return shown, model


@cache
def _files() -> tuple[bytes, bytes]:
    return _saved(*_example())


def _saved(shown: Shown, model: SavedModel) -> tuple[bytes, bytes]:
    with TemporaryDirectory() as folder:
        file = write_saved(Path(folder), shown, model)
        return Path(folder, "shown.safetensors").read_bytes(), file.read_bytes()


def _seeds(which: int, changes: tuple[dict[str, Any], ...]) -> list[bytes]:
    whole = _files()[which]
    example: Shown | SavedModel = _example()[which]
    shown = saved._digest(_files()[0])
    odd = [saved._pack(replace(example, **change), shown=shown) for change in changes]
    inner = (
        whole.replace(b"0.5", b"NaN"),
        whole.replace(b"0.5", b"1e9"),
        whole.replace(b"std", b"\0"),
    )
    return [whole, whole[:-9], b"", *inner, *odd, save({"x": np.zeros(1)}, {"about": "[" * 10**5})]


def _axes(**axes: list[float]) -> dict[str, Any]:
    return {name: np.array(values, np.float32) for name, values in axes.items()}


_ODD_MODELS: tuple[dict[str, Any], ...] = (
    *({"measured": {}}, {"measured": {"nat": 0.5}}, {"measured": [1]}, {"measured": {"nat": "x"}}),
    *({"attack": 3}, {"name": None}, {"seed": -1}, {"worst": np.array([0, 4])}),
    *({"worst": np.array([0.0, np.nan])}, {"predicted": np.zeros((2, 2, 1, 2), np.float32)}),
    *(
        {"predicted": np.zeros((2, 2, 2, 1), np.uint8)},
        {"predicted_along": np.zeros((0, 2), np.uint8)},
    ),
    *(
        {"natural_correct": np.ones(2, bool)},
        {"predicted": np.full((2, 2, 1, 2), 70_000, np.uint32)},
    ),
)
_ODD_AXES: tuple[list[float], ...] = ([np.nan, 1], [1, -1], [0, 3e38], [])
_ODD_SHOWN: tuple[dict[str, Any], ...] = (
    *({"classes": 5}, {"classes": ()}, {"dataset": None}, {"data_digest": 3}, {"canvas": -1}),
    *({"images": np.zeros((2, 2, 2, 4), np.uint8)}, {"images": np.zeros((2, 3, 0, 4), np.uint8)}),
    *({"labels": np.array([0, -1, 1])}, {"labels": np.array([0, 9, 1])}),
    *({"grid": _axes(dx=dx, dy=[0], angle=[-1, 1])} for dx in _ODD_AXES),
    *({"places": np.array([0, 1, 2**62])}, {"along": "zoom"}, {"along": 3}),
    *({"space": text} for text in ("shift(3px)", "swirl(3)", "shift(10%) rotate(30)", "(", 3)),
    *({"space": text} for text in ("shift(9e9px) rotate(30)", "shift(3px) rotate(0..1e300)")),
    {"space": "blur(0..3px) zoom(0.5..2)", "grid": _axes(zoom=[-0.5, 0.5], blur=[0, 2])},
)

TARGETS = (
    Target("saved", _model, lambda: _seeds(1, _ODD_MODELS)),
    Target("saved-images", _shown, lambda: _seeds(0, _ODD_SHOWN)),
)
