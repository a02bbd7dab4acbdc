"""What a long evaluation has measured so far, and the file that holds it.

One safetensors file: the arrays of some pieces of the data, and as its metadata what the evaluation
was asked. See ``state_files`` for which files are a state, and whose.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from upright.evaluation.journal import Asked, Begun
from upright.evaluation.stream import Chunk
from upright.files import write_whole
from upright.identity import NOBODY
from upright.later import question_now

__all__ = ["Piece", "State", "checksum", "load_state", "save_state"]

_PIECES, _BEGUN = "images/", "begun/"
_BOOLEAN = ("fooled", "/safe", "/safe_early")


@dataclass
class Piece:
    """What was measured of one chunk."""

    images: int
    checksum: int = 0
    arrays: dict[str, Tensor] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def keep(self, **arrays: Tensor) -> None:
        """Keep arrays, one row for each image; all of them are brought over at once."""
        self.arrays.update(zip(arrays, _brought_over(*arrays.values()), strict=True))


@dataclass
class State:
    """What was measured so far: a piece for each chunk, by where it starts in the data."""

    question: dict[str, object]
    pieces: dict[int, Piece] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    """Arrays that are the same for all chunks."""
    beside: str | None = None
    """Of one whose constants are in another file: their digest."""
    begun: dict[int, Begun] = field(default_factory=dict)
    """What is known of chunks that are under way, by where they start."""

    @property
    def digest(self) -> str:
        """The digest of the constants, the model's first answers among them."""
        return _digest({}, self.constants)

    @property
    def knows_model(self) -> bool:
        """Whether the model is known by a digest, and not by its answers alone."""
        return self.question.get("model") not in (None, asdict(NOBODY))

    def part(self, starts: Iterable[int]) -> State:
        """Give the state with some of its pieces alone, by where they start."""
        pieces = {start: self.pieces[start] for start in starts}
        return State(self.question, pieces, self.constants)

    def once(self, name: str, array: Tensor) -> Tensor:
        """Keep an array that is the same for all chunks, and give the one that was kept first."""
        return self.constants.setdefault(name, array.detach().cpu().contiguous())

    def joined(self, name: str) -> Tensor:
        try:
            return torch.cat([piece.arrays[name] for _, piece in sorted(self.pieces.items())])
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"the state has no whole {name}; remove it") from error

    def if_whole(self, name: str) -> Tensor | None:
        """Give an array that not all questions have, nor pieces of older versions; or None."""
        whole = all(name in piece.arrays for piece in self.pieces.values())
        return self.joined(name) if whole else None

    def total(self, name: str) -> float:
        if not all(name in piece.totals for piece in self.pieces.values()):
            raise ValueError(f"the state has no whole {name}; remove it")
        return sum(piece.totals[name] for _, piece in sorted(self.pieces.items()))

    def sorted(self, places: Tensor) -> State:
        """Give what was measured of images in this order as one piece, in the order of the data.

        What comes after a chunk that is missing is left out: the first of a random order are
        random, and what one process did beyond another's unfinished chunk is not.
        """
        pieces, done = list[Piece](), 0
        while done in self.pieces:
            pieces.append(self.pieces[done])
            done += pieces[-1].images
        first = State(self.question, dict(enumerate(pieces)), self.constants)
        order, names = places[:done].argsort(), {name for each in pieces for name in each.arrays}
        totals = {name for each in pieces for name in each.totals}
        whole = Piece(done, totals={name: first.total(name) for name in totals})
        whole.arrays = {name: first.joined(name)[order] for name in names}
        return State(self.question, {0: whole}, self.constants)

    def merge(self, other: State) -> None:
        """Take over what another state has beside this one."""
        self.pieces = other.pieces | self.pieces
        self.constants = other.constants | self.constants
        for start, begun in other.begun.items():
            if start not in self.begun or self.begun[start].answers < begun.answers:
                self.begun[start] = begun


def _brought_over(*arrays: Tensor) -> Iterator[Tensor]:
    """Give arrays of as many rows on the host, in one copy: each waits for a GPU."""
    rows = [array.detach().reshape(len(array), -1) for array in arrays]
    # No plain contiguous(): one row, or rows of one value, are so in torch's eyes whatever they lie
    # among, and cannot be taken for bytes.
    flat = [each.clone(memory_format=torch.contiguous_format) for each in rows]
    whole = torch.cat([each.view(torch.uint8) for each in flat], 1).cpu()
    widths = [each.shape[1] * each.element_size() for each in flat]
    for part, array in zip(whole.split(widths, 1), arrays, strict=True):
        own = part.clone(memory_format=torch.contiguous_format)
        yield own.view(array.dtype).reshape(array.shape)


def checksum(chunk: Chunk) -> int:
    """Give a checksum of images and labels."""
    total = 0
    for part in (chunk.images, chunk.labels):
        content = part.detach().cpu().contiguous().view(torch.uint8).numpy()
        total = zlib.crc32(content.tobytes(), total)
    return total


def _digest(metadata: dict[str, str], arrays: dict[str, Tensor]) -> str:
    """Give a digest of all that a state holds."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_state(path: Path, state: State, *, beside: str | None = None) -> None:
    """Write a state whole or not at all; or one without constants, ``beside`` that with those."""
    pieces = sorted(state.pieces.items())
    metadata = {
        "question": json.dumps(state.question, sort_keys=True),
        "pieces": json.dumps([[at, it.images, it.checksum, it.totals] for at, it in pieces]),
    }
    if beside is not None:
        metadata["beside"] = beside
    # Pieces that an older version measured may lack some.
    names = set.intersection(*(set(piece.arrays) for _, piece in pieces)) if pieces else set()
    arrays = {f"{_PIECES}{name}": state.joined(name).contiguous() for name in sorted(names)}
    arrays |= state.constants if beside is None else {}
    if state.begun:
        metadata["begun"], answers = _begun_as_arrays(state.begun)
        arrays |= answers
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
        wrong |= name.endswith(("/class", "/classes")) and array.dtype != torch.int64
        if wrong or (name.endswith(_BOOLEAN) and array.dtype != torch.bool):
            raise ValueError(f"{name} are not those of {done} images")


def load_state(path: Path, question: dict[str, object], *older: dict[str, object]) -> State:
    """Read a state, or begin one where there is no file.

    ``older`` are the same question as older versions put it.
    """
    if not path.exists():
        return State(question)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it for the state")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.pop("sha256") != _digest(metadata, arrays):
            raise ValueError("its digest does not fit")
        asked, about = json.loads(metadata["question"]), json.loads(metadata["pieces"])
        _check(asked, about, arrays)
        asked = question_now(asked)
        state = State(asked, _pieces(about, arrays), beside=metadata.get("beside"))
        apart = (_PIECES, _BEGUN)
        state.constants = {n: array for n, array in arrays.items() if not n.startswith(apart)}
        state.begun = _begun_of(json.loads(metadata.get("begun", "[]")), arrays)
    except FileNotFoundError:  # another process that measures the same has just put it elsewhere
        return State(question)
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
    wanted, *others = (json.loads(json.dumps(each)) for each in (question, *older))
    if asked != wanted and asked not in others:
        differing = sorted(key for key in asked | wanted if asked.get(key) != wanted.get(key))
        if differing == ["sample"] and "sample" not in wanted:
            raise ValueError(
                f"{path} is of images in a random order, by --minutes or --sample; go on with "
                f"--minutes, as many as you like, or with --sample {asked['sample']}"
            )
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


def _begun_as_arrays(begun: dict[int, Begun]) -> tuple[str, dict[str, Tensor]]:
    """Give what is under way as text and arrays; what was not asked for has none."""
    about, arrays = [], dict[str, Tensor]()
    for start, each in begun.items():
        asked = [(digest, one.seconds) for digest, one in each.asked.items()]
        about.append([start, each.checksum, asked, list(each.hardest)])
        for name, rates in each.hardest.items():
            arrays[f"{_BEGUN}{start}/hardest/{name}"] = rates
        for digest, one in each.asked.items():
            parts = {"values": one.values, "classes": one.classes, "slopes": one.slopes}
            for part, array in parts.items():
                if array is not None:
                    arrays[f"{_BEGUN}{start}/{digest}/{part}"] = array.contiguous()
    return json.dumps(about), arrays


def _begun_of(about: list[Any], arrays: dict[str, Tensor]) -> dict[int, Begun]:
    """Read what ``_begun_as_arrays`` wrote."""
    found = dict[int, Begun]()
    for start, check, asked, hardest in about:
        at = f"{_BEGUN}{start}"
        answers = {digest: _asked_of(f"{at}/{digest}/", took, arrays) for digest, took in asked}
        rates = {name: arrays[f"{at}/hardest/{name}"] for name in hardest}
        found[start] = Begun(check, answers, rates)
    return found


def _asked_of(at: str, seconds: float, arrays: dict[str, Tensor]) -> Asked:
    values, classes, slopes = (arrays.get(at + part) for part in ("values", "classes", "slopes"))
    if values is None or values.ndim != 2 or values.dtype != torch.float64:
        raise ValueError("its answers are not those of an evaluation")
    for part in (classes, slopes):
        if part is not None and part.shape[:2] != values.shape:
            raise ValueError("its answers are not those of an evaluation")
    return Asked(values, classes, slopes, float(seconds))
