"""What the explorer shows, on disk: the images, and each model's answers over the grid of poses.

A folder holds one ``shown.safetensors``, the images that all its models were asked about, and one
file for each model, which knows the shown images by their digest. Every file is one safetensors
file, with a JSON text and a digest of everything as its metadata, and is written whole or not at
all. The space of poses is in the text, the values of each of its axes are an array ``grid/AXIS``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from upright.files import plain_name, write_whole
from upright.pose import Pose
from upright.records import Record
from upright.report.first_saved import as_now
from upright.report.model import Source
from upright.report.saved_checks import check_model, check_shown
from upright.space import Space

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
_AXIS = "grid/"
"""Before the name of an axis: the array of its values."""

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
    """int64, M >= N: of the images that vary along one axis only, too. The first N are the
    explored."""
    places: Array
    """int64, M: where each lies in the data."""
    space: Space
    """With limits in pixels."""
    grid: dict[str, Array]
    """float32: the values of each axis of the space, by its name and in its order."""
    along: str
    """The axis along which M images vary, the rest of their pose zero."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many values the grid has on each axis."""
        return tuple(len(values) for values in self.grid.values())

    def poses(self) -> Pose:
        """Give all poses of the grid, the last axis fastest."""
        axes = [torch.as_tensor(values) for values in self.grid.values()]
        parts = [part.flatten() for part in torch.meshgrid(*axes, indexing="ij")]
        return Pose(torch.stack(parts, -1), self.space.chain)

    def poses_along(self) -> Pose:
        """Give the poses along the one axis."""
        return self.space.pose(**{self.along: torch.as_tensor(self.grid[self.along])})

    def pose_at(self, place: Sequence[int]) -> Pose:
        """Give the single pose that has this place on each axis."""
        parts = zip(self.grid.values(), place, strict=True)
        return Pose(torch.tensor([[float(axis[at]) for axis, at in parts]]), self.space.chain)

    def class_name(self, number: int) -> str:
        """Name a class; a model may know more of them than the data have names for."""
        return self.classes[number] if number < len(self.classes) else str(number)


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedModel:
    """One model's answers. Classes are uint8, or uint16 or uint32 where there are more."""

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
    """N x the values of each axis: the class."""
    confidence: Array
    """uint8, of the same shape: the softmax probability of that class, in 255ths."""
    natural: Array
    """N: the class of the image as it is."""
    natural_confidence: Array
    """uint8, N, in 255ths."""
    worst: Array
    """int64, N: the flat index of the worst pose in the grid."""
    predicted_along: Array
    """M x the values of ``Shown.along``: the class there, the rest of the pose zero."""
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
    unguarded: tuple[Path, ...] = ()
    """Files without a digest, as they were saved before there was one."""


def record_id(record: Record | Source) -> str:
    """Name a record by its run and its time: the recipe's hash, the seed, and when it was done."""
    time = re.sub(r"\D", "", record.finished)[:14]
    return f"{record.recipe_hash}-{record.seed}-{time}"


def check_beside(folder: Path, shown: Shown) -> None:
    """Check that models with these images and this grid may be saved in a folder."""
    path = folder / _SHOWN
    if path.exists() and not _same(_read(Shown, path).value, shown):
        raise ValueError(
            f"{folder} holds other images or another grid; name another folder, or remove {path} "
            "and what lies beside it"
        )


def _same(one: Shown, other: Shown) -> bool:
    return _digest_of(*_parts(one)) == _digest_of(*_parts(other))


def write_saved(folder: Path, shown: Shown, model: SavedModel) -> Path:
    """Add a model to a folder, in place of what was saved under its name; give its file."""
    check_beside(folder, shown)
    path = folder / _SHOWN
    if not path.exists():  # else the models beside it know it as it is
        write_whole(path, _pack(shown))
    target = folder / _file_name(model.name)
    write_whole(target, _pack(model, shown=_digest(path.read_bytes())))
    return target


def read_saved(folder: Path) -> Exhibition:
    """Read a folder; what was altered, or a model that answered to other images, is an error."""
    path = folder / _SHOWN
    if not path.is_file():
        raise ValueError(f"{folder} has no {_SHOWN}; `upright evaluate --save {folder}` makes it")
    shown = _read(Shown, path)
    digest = _digest(path.read_bytes())
    files = [file for file in sorted(folder.glob("*.safetensors")) if file.name != _SHOWN]
    models = [_read_model(file, shown.value, digest, path) for file in files]
    found = [(path, shown.guarded), *zip(files, (model.guarded for model in models), strict=True)]
    return Exhibition(
        shown.value,
        tuple(model.value for model in models),
        tuple(file for file, guarded in found if not guarded),
    )


_Kind = TypeVar("_Kind", Shown, SavedModel)


@dataclass(frozen=True)
class _Read(Generic[_Kind]):
    """What was read from a file: its value, and what it says of itself."""

    value: _Kind
    about: dict[str, Any]
    guarded: bool
    """Whether it has a digest, which is right then."""


def _read_model(file: Path, shown: Shown, digest: str, path: Path) -> _Read[SavedModel]:
    found = _read(SavedModel, file)
    if found.about.get("shown") != digest:
        raise ValueError(f"{file} belongs to other images than {path}; remove it")
    with _named(file):
        check_model(shown, found.value)
    return found


def _read(kind: type[_Kind], path: Path) -> _Read[_Kind]:
    with _named(path):
        text, sha256, arrays = _load(path)
    if sha256 is not None and sha256 != _digest_of(text, arrays):
        raise ValueError(f"{path} is not as it was saved; save it again, or remove it")
    with _named(path):
        about, arrays = as_now(json.loads(text, parse_constant=_refuse), arrays)
        value = _build(kind, about, arrays)
        if isinstance(value, Shown):
            check_shown(value)
    return _Read(value, about, sha256 is not None)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let every error about a file name it, in one line."""
    try:
        yield
    except _UnknownSpaceError as error:
        raise ValueError(
            f"{path} is of a space that is not known here ({error}); import its families first, or "
            "remove the file"
        ) from None
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as e:
        reason = " ".join(str(e).split()) or type(e).__name__
        raise ValueError(
            f"{path} was not saved by `upright evaluate --save` ({reason}); remove it"
        ) from e


def _load(path: Path) -> tuple[str, str | None, dict[str, Array]]:
    """Give what is not an array, the digest where there is one, and the arrays."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return metadata["about"], metadata.get("sha256"), arrays


def _build(kind: type[_Kind], about: dict[str, Any], arrays: dict[str, Array]) -> _Kind:
    known = {field.name for field in fields(kind)}
    values = arrays | {name: about[name] for name in known if name in about}
    if kind is Shown:
        values["classes"] = tuple(values["classes"])
        values["space"] = _space(values["space"])
        axes = [axis.name for axis in values["space"].axes]
        values["grid"] = {name: values.pop(_AXIS + name) for name in axes}
    return kind(**values)


class _UnknownSpaceError(ValueError):
    """The space has a family that somebody added, and that is not added here."""


def _space(text: object) -> Space:
    try:
        return Space.of(text)  # type: ignore[arg-type]
    except ValueError as error:
        raise _UnknownSpaceError(textwrap.shorten(str(error), 200)) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number of JSON")


def _parts(value: Shown | SavedModel, **more: object) -> tuple[str, dict[str, Array]]:
    """What is not an array, as JSON, and the arrays."""
    about = {field.name: getattr(value, field.name) for field in fields(value)} | more
    arrays = {name: part for name, part in about.items() if isinstance(part, np.ndarray)}
    if isinstance(value, Shown):
        about |= {"space": str(value.space)}
        arrays |= {_AXIS + name: values for name, values in about.pop("grid").items()}
    plain = {name: part for name, part in about.items() if name not in arrays}
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return json.dumps(plain, sort_keys=True, allow_nan=False), whole


def _pack(value: Shown | SavedModel, **more: object) -> bytes:
    """Give the content of a file, always the same one: safetensors has its metadata in any order.

    Two processes that save into a new folder both write the images. The models of one would be of
    other images than those of the other.
    """
    about, arrays = _parts(value, **more)
    packed = save(arrays, {"about": about, "sha256": _digest_of(about, arrays)})
    end = 8 + int.from_bytes(packed[:8], "little")
    header = json.dumps(json.loads(packed[8:end]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + packed[end:]


def _digest_of(about: str, arrays: dict[str, Array]) -> str:
    """The digest of all that a file says, however safetensors lays it out."""
    digest = hashlib.sha256(about.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _file_name(model: str) -> str:
    """A few digits keep names apart that look alike."""
    return f"{plain_name(model, longest=60)}-{_digest(model.encode())[:6]}.safetensors"
