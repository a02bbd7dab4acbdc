"""The state of a long evaluation on disk, so that it continues where it was stopped.

One safetensors file: the arrays measured so far, and as its metadata what the evaluation was asked.
A state is not continued with another question or other data, nor with another model: a module is
known by a digest of its weights, any other callable by its answers to the first images.

Of several processes each writes a file of its own, with all that was known when it started and what
it measured since. All of these files together are the state, whoever continues it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from upright.evaluation.stream import Chunk
from upright.files import write_whole
from upright.ranks import ALONE, Ranks

__all__ = ["Piece", "State", "StateFiles", "checksum", "digest_of", "load_state", "save_state"]

_PIECES = "images/"


@dataclass
class Piece:
    """What was measured of one chunk."""

    images: int
    checksum: int = 0
    arrays: dict[str, Tensor] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def keep(self, **arrays: Tensor) -> None:
        """Keep arrays, one row for each image."""
        self.arrays.update({name: array.detach().cpu() for name, array in arrays.items()})


@dataclass
class State:
    """What was measured so far: a piece for each chunk, by where it starts in the data."""

    question: dict[str, object]
    pieces: dict[int, Piece] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    """Arrays that are the same for all chunks."""

    def once(self, name: str, array: Tensor) -> Tensor:
        """Keep an array that is the same for all chunks, and give the one that was kept first."""
        return self.constants.setdefault(name, array.detach().cpu())

    def joined(self, name: str) -> Tensor:
        try:
            return torch.cat([piece.arrays[name] for _, piece in sorted(self.pieces.items())])
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"the state has no whole {name}; remove it") from error

    def optional(self, name: str) -> Tensor | None:
        known = any(name in piece.arrays for piece in self.pieces.values())
        return self.joined(name) if known else None

    def if_whole(self, name: str) -> Tensor | None:
        """Give an array that pieces of older versions do not have; None where one has none."""
        whole = all(name in piece.arrays for piece in self.pieces.values())
        return self.joined(name) if whole else None

    def total(self, name: str) -> float:
        if not all(name in piece.totals for piece in self.pieces.values()):
            raise ValueError(f"the state has no whole {name}; remove it")
        return sum(piece.totals[name] for _, piece in sorted(self.pieces.items()))

    def merge(self, other: State) -> None:
        """Take over what another state has beside this one."""
        self.pieces = other.pieces | self.pieces
        self.constants = other.constants | self.constants


def checksum(chunk: Chunk) -> int:
    """Give a checksum of images and labels."""
    total = 0
    for part in (chunk.images, chunk.labels):
        content = part.detach().cpu().contiguous().view(torch.uint8).numpy()
        total = zlib.crc32(content.tobytes(), total)
    return total


def digest_of(model: object) -> str | None:
    """Give a digest of a module's weights, buffers and extra state; None for one without weights,
    and for any other callable."""
    state = model.state_dict() if isinstance(model, nn.Module) else {}
    if not any(isinstance(value, Tensor) for value in state.values()):
        return None
    digest = hashlib.sha256()
    for name, value in state.items():
        digest.update(name.encode())
        if isinstance(value, Tensor):
            flat = value.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().tobytes())
        elif isinstance(value, str):
            digest.update(value.encode())
    return digest.hexdigest()


def _digest(metadata: dict[str, str], arrays: dict[str, Tensor]) -> str:
    """Give a digest of all that a state holds."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_state(path: Path, state: State) -> None:
    """Write a state whole or not at all."""
    pieces = sorted(state.pieces.items())
    metadata = {
        "question": json.dumps(state.question, sort_keys=True),
        "pieces": json.dumps([[at, it.images, it.checksum, it.totals] for at, it in pieces]),
    }
    # Pieces that an older version measured may lack some.
    names = set.intersection(*(set(piece.arrays) for _, piece in pieces)) if pieces else set()
    arrays = {f"{_PIECES}{name}": state.joined(name).contiguous() for name in sorted(names)}
    arrays |= state.constants
    write_whole(path, save(arrays, metadata | {"sha256": _digest(metadata, arrays)}))


def _check(asked: object, about: object, arrays: dict[str, Tensor]) -> None:
    """Refuse what no evaluation has written, although its digest fits."""
    if not isinstance(asked, dict) or not isinstance(about, list):
        raise ValueError("it has no question or no pieces")
    for piece in about:
        at, images, check, totals = piece
        numbers = (at, images, check, *totals.values())
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("its pieces are not those of an evaluation")
    done = sum(images for _, images, _, _ in about)
    for name, array in arrays.items():
        wrong = array.ndim == 0 or (name.startswith(_PIECES) and len(array) != done)
        wrong |= name.endswith("/class") and array.dtype != torch.int64
        if wrong or (name.endswith("fooled") and array.dtype != torch.bool):
            raise ValueError(f"{name} are not those of {done} images")


def load_state(path: Path, question: dict[str, object]) -> State:
    """Read a state, or begin one where there is no file."""
    if not path.exists():
        return State(question)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.pop("sha256") != _digest(metadata, arrays):
            raise ValueError("its digest does not fit")
        asked, about = json.loads(metadata["question"]), json.loads(metadata["pieces"])
        _check(asked, about, arrays)
        state = State(question, _pieces(about, arrays))
        state.constants = {n: array for n, array in arrays.items() if not n.startswith(_PIECES)}
    except (
        SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
        OSError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"{path} is not the state of an evaluation ({error}); remove it"
        ) from error
    if asked != (wanted := json.loads(json.dumps(question))):
        differing = sorted(key for key in asked | wanted if asked.get(key) != wanted.get(key))
        raise ValueError(
            f"{path} belongs to another evaluation (other {', '.join(differing) or 'settings'}); "
            "remove it or name another file"
        )
    return state


def _pieces(about: list[list[Any]], arrays: dict[str, Tensor]) -> dict[int, Piece]:
    """Cut arrays over all chunks into those of each."""
    sizes = [images for _, images, _, _ in about]
    pieces = {at: Piece(images, check, {}, totals) for at, images, check, totals in about}
    for name, array in arrays.items():
        if name.startswith(_PIECES):
            for piece, rows in zip(pieces.values(), array.split(sizes), strict=True):
                piece.arrays[name.removeprefix(_PIECES)] = rows
    return pieces


@dataclass(frozen=True)
class StateFiles:
    """The file of one process, or those of several; without a path nothing is kept."""

    path: Path | None
    ranks: Ranks = ALONE

    def load(self, question: dict[str, object], model: object) -> State:
        """Read all files, also those of more processes than there are now."""
        if self.path is None:
            return State(question)
        question = question | {"model": digest_of(model)}
        state = load_state(self.path, question)
        for file in _files_of_ranks(self.path):
            state.merge(load_state(file, question))
        return state

    def save(self, state: State, chunk: Chunk) -> None:
        """Write this process's file, after one more chunk."""
        if self.path is None:
            return
        state.pieces[chunk.start].checksum = checksum(chunk)
        name = self.path.name if self.ranks.leads else f"{self.path.name}.rank-{self.ranks.rank}"
        save_state(self.path.with_name(name), state)

    def finish(self, state: State) -> None:
        """Leave one file, with all of it."""
        if self.path is None or not (files := _files_of_ranks(self.path)):
            return
        save_state(self.path, state)
        for file in files:
            file.unlink(missing_ok=True)


def _files_of_ranks(path: Path) -> list[Path]:
    files = path.parent.glob(f"{glob.escape(path.name)}.rank-*")
    return sorted(file for file in files if file.suffix.removeprefix(".rank-").isdigit())
