"""What the explorer shows, on disk: the images, and each model's answers over the grid of poses.

A folder holds one ``shown.safetensors``, the images that all its models were asked about, and one
file for each model, which knows the shown images by their digest. Every file is one safetensors
file with a JSON text as its metadata, and is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from upright.files import plain_name, write_whole
from upright.records import Record
from upright.report.model import Source

__all__ = [
    "Exhibition",
    "SavedModel",
    "Shown",
    "check_beside",
    "read_saved",
    "record_id",
    "write_saved",
]

_SHOWN = "shown.safetensors"

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Shown:
    """Images chosen at random from the data, and the grid of poses at which models answer."""

    dataset: str
    split: str
    classes: tuple[str, ...]
    data_digest: dict[str, str]
    """SHA-256 of all images and labels that were evaluated, as in records."""
    images: Array
    """uint8, N x C x H x W: those that are explored at all poses of the grid, canvas included."""
    canvas: int
    """Pixels of black around all images, as in the evaluation."""
    labels: Array
    """int64, M >= N: of the images that are turned only, too. The first N are the explored."""
    places: Array
    """int64, M: where each lies in the data."""
    dx_px: Array
    dy_px: Array
    angle_degrees: Array
    """The axes of the grid, float32."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedModel:
    """One model's answers. Classes are uint8, or uint16 where there are more than 256."""

    name: str
    """As it was asked for on the command line."""
    method: str | None
    """The objective, for a run of `upright train`; for another model, what it is called."""
    seed: int | None
    attack: str
    """The grid, by its name."""
    measured: dict[str, float]
    """Accuracies as fractions over all images: ``nat``, and one by the name of each attack."""
    record: str | None
    """The ``record_id`` of the evaluation, under which its record is found where it was kept."""
    origin: dict[str, Any]
    """Commit, versions, hardware and time of the evaluation."""
    predicted: Array
    """N x dx x dy x angle: the class."""
    confidence: Array
    """uint8, N x dx x dy x angle: the softmax probability of that class, in 255ths."""
    natural: Array
    """N: the class of the image as it is."""
    natural_confidence: Array
    """uint8, N, in 255ths."""
    worst: Array
    """int64, N: the flat index of the worst pose in the grid."""
    turned: Array
    """M x angle: the class at each angle without a shift."""
    natural_correct: Array
    """bool, all images."""
    grid_correct: Array
    """bool, all images: right at every pose of the grid."""


@dataclass(frozen=True)
class Exhibition:
    """A folder of saved arrays: images, and models that answered to them, in order of their file
    names."""

    shown: Shown
    models: tuple[SavedModel, ...]


def record_id(record: Record | Source) -> str:
    """Name a record by its run and its time: the recipe's hash, the seed, and when it was done."""
    time = re.sub(r"\D", "", record.finished)[:14]
    return f"{record.recipe_hash}-{record.seed}-{time}"


def check_beside(folder: Path, shown: Shown) -> None:
    """Check that models with these images and this grid may be saved in a folder."""
    path = folder / _SHOWN
    if path.exists() and path.read_bytes() != _pack(shown):
        raise ValueError(
            f"{folder} holds other images or another grid; name another folder, or remove {path} "
            "and what lies beside it"
        )


def write_saved(folder: Path, shown: Shown, model: SavedModel) -> Path:
    """Add a model to a folder, in place of what was saved under its name; give its file."""
    check_beside(folder, shown)
    content = _pack(shown)
    write_whole(folder / _SHOWN, content)
    target = folder / _file_name(model.name)
    write_whole(target, _pack(model, shown=_digest(content)))
    return target


def read_saved(folder: Path) -> Exhibition:
    """Read a folder; a model that answered to other images is an error."""
    path = folder / _SHOWN
    if not path.is_file():
        raise ValueError(f"{folder} has no {_SHOWN}; `upright evaluate --save {folder}` makes it")
    shown, _ = _unpack(Shown, path)
    digest, models = _digest(path.read_bytes()), []
    for file in sorted(folder.glob("*.safetensors")):
        if file.name != _SHOWN:
            model, about = _unpack(SavedModel, file)
            if about.get("shown") != digest:
                raise ValueError(f"{file} belongs to other images than {path}; remove it")
            _check_shapes(shown, model, file)
            models.append(model)
    return Exhibition(shown, tuple(models))


def _pack(value: Shown | SavedModel, **more: object) -> bytes:
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    arrays = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    about = {name: part for name, part in asdict(value).items() if name not in arrays} | more
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(arrays, {"about": json.dumps(about, sort_keys=True)})


_Kind = TypeVar("_Kind", Shown, SavedModel)


def _unpack(kind: type[_Kind], path: Path) -> tuple[_Kind, dict[str, Any]]:
    try:
        with safe_open(path, "numpy") as file:
            about = json.loads((file.metadata() or {})["about"])
            values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        known = {field.name for field in fields(kind)}
        values |= {name: about[name] for name in known if name in about}
        if "classes" in values:
            values["classes"] = tuple(values["classes"])
        return kind(**values), about
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} was not saved by `upright evaluate --save` ({error})") from error


def _check_shapes(shown: Shown, model: SavedModel, path: Path) -> None:
    explored = len(shown.images)
    grid = (len(shown.dx_px), len(shown.dy_px), len(shown.angle_degrees))
    wanted = {
        "predicted": (explored, *grid),
        "confidence": (explored, *grid),
        "natural": (explored,),
        "natural_confidence": (explored,),
        "worst": (explored,),
        "turned": (len(shown.labels), grid[2]),
    }
    for name, shape in wanted.items():
        if (found := getattr(model, name).shape) != shape:
            raise ValueError(f"{path}: {name} has shape {found}, not {shape}; save it again")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _file_name(model: str) -> str:
    """A few digits keep names apart that look alike."""
    return f"{plain_name(model, longest=60)}-{_digest(model.encode())[:6]}.safetensors"
