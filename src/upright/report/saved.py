"""Saved files of what the explorer shows: the images, and each model's answers over the grid.

A folder holds one ``shown.safetensors``, the images that all its models were asked about, and one
file for each model, which knows the shown images by their digest. Every file is one safetensors
file, with a JSON text and a digest of everything as its metadata, and is written whole or not at
all. The space of poses is in the text, the values of each of its axes are an array ``grid/AXIS``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from upright.checks import few
from upright.files import plain_name, write_whole
from upright.report.exhibition import Array, Exhibition, SavedModel, Shown
from upright.report.saved_checks import check_model, check_shown
from upright.space import Space

__all__ = ["check_beside", "check_name", "read_saved", "write_saved"]

_SHOWN = "shown.safetensors"
_BY_CLASSES = ("classes", "labels", "data_digest")
"""What of the shown images depends on the order of a model's outputs."""
_AXIS = "grid/"
"""Before the name of an axis: the array of its values."""
_FIRST_NAMES = {
    "dx_px": "grid/dx",
    "dy_px": "grid/dy",
    "angle_degrees": "grid/angle",
    "turned": "predicted_along",
}
"""What each array of the first version, whose poses were all shifts and turns, is called now."""


def check_beside(folder: Path, shown: Shown) -> None:
    """Check that models with these images and this grid may be saved in a folder."""
    path = folder / _SHOWN
    if path.exists() and (other := _difference(_read(Shown, path).value, shown)):
        raise ValueError(
            f"{folder} holds {other}; name another folder, or remove {path} and what lies beside it"
        )


def check_name(folder: Path, name: str, recipe_hash: str) -> None:
    """Check that what a folder has under a name is of this model, if anything is."""
    path = folder / _file_name(name)
    if not path.exists():
        return
    record = _read(SavedModel, path).value.record
    if record is not None and not record.startswith(f"{recipe_hash}-"):
        raise ValueError(
            f"{folder} holds the answers of another model that is called {name}: call this one "
            f"otherwise (--name), name another folder, or remove {path}"
        )


def _difference(one: Shown, other: Shown) -> str:
    """Say what one has that the other does not; nothing where they are the same."""
    digest = _digest_of(*_parts(one))
    if digest == _digest_of(*_parts(other)):
        return ""
    named_alike = replace(other, **{name: getattr(one, name) for name in _BY_CLASSES})
    if digest == _digest_of(*_parts(named_alike)):
        return f"answers of other classes, or in another order ({few(one.classes)})"
    return "other images or another grid"


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
        about, arrays = _as_now(json.loads(text, parse_constant=_refuse), arrays)
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
            f"{path} is of a space that is not known here: {error}; name the file of its families "
            "by --families FILE.py, import it in Python, or remove what was saved"
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
        raise _UnknownSpaceError(str(error).partition("; ")[0]) from None


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


def _as_now(
    about: dict[str, Any], arrays: dict[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Give the text and the arrays of a file of any version as those of this one."""
    if not arrays.keys() & _FIRST_NAMES.keys():
        return about, arrays
    named = {_FIRST_NAMES.get(name, name): array for name, array in arrays.items()}
    if "turned" in arrays:
        return about, named
    dx, dy, angle = (_limits(arrays[name]) for name in _FIRST_NAMES if name in arrays)
    return about | {"space": f"shift({dx}px, {dy}px) rotate({angle})", "along": "angle"}, named


def _limits(values: Array) -> str:
    """The limits of an axis, by the ends of its grid; they were not saved."""
    return f"{values.min():.6g}..{values.max():.6g}"
