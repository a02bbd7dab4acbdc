"""The cache of fetched data sets: one folder a set, with arrays that are mapped, not read.

    ROOT/NAME/{train,test}_images.npy   uint8, N x 3 x 32 x 32
    ROOT/NAME/{train,test}_labels.npy   int64, N
    ROOT/NAME/facts.json                where it came from, which variant it is, SHA-256 digests

ROOT is `UPRIGHT_DATA` where that is set, else `upright` in the platform's cache folder. A set is
written under another name and renamed when it is whole, so a folder called NAME is complete.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from upright.data.facts import FACTS, Facts, read_facts, write_facts
from upright.data.known import KNOWN, SPLITS, KnownSet, known_set
from upright.data.notes import take_note
from upright.data.raw import RawSplit, array_names
from upright.data.recognise import Recognised, check_form, in_words, recognise
from upright.data.registry import AnySplit, Split
from upright.files import sync_folder

__all__ = [
    "Checked",
    "Stored",
    "cache_folder",
    "check",
    "installed",
    "is_installed",
    "open_split",
    "recognise_any",
    "save",
]


@dataclass(frozen=True)
class Stored:
    """What the cache has of one known set; without the set, `origin` is None and `size_bytes` 0."""

    name: str
    folder: Path
    installed: bool
    counts: Mapping[str, int]
    classes: int
    origin: str | None
    size_bytes: int
    variant: str = ""
    """As its facts tell, in words."""


@dataclass(frozen=True)
class Checked:
    """The faults that `check` found, one line each, and which variant the sound splits are."""

    name: str
    folder: Path
    faults: tuple[str, ...]
    recognised: Mapping[Split, Recognised]

    @property
    def sound(self) -> bool:
        """Whether there is no fault."""
        return not self.faults


def cache_folder() -> Path:
    """`UPRIGHT_DATA`, else `upright` in the platform's cache folder."""
    chosen = os.environ.get("UPRIGHT_DATA")
    return Path(chosen).expanduser() if chosen else _platform_cache() / "upright"


def installed(*, root: Path | None = None) -> tuple[Stored, ...]:
    """Every known set, and whether the cache has it."""
    return tuple(_describe(known, root or cache_folder()) for known in KNOWN.values())


def is_installed(known: KnownSet, *, root: Path | None = None) -> bool:
    """Whether the cache has a set; `check` says whether it is sound, too."""
    return _folder(known, root).joinpath(FACTS).is_file()


def check(name: str | KnownSet, *, root: Path | None = None) -> Checked:
    """Compute the digests of a stored set again, and compare them with those that are known.

    Of a set that was accepted by the MD5 sums of its files, with those that were kept then.
    """
    known = known_set(name)
    _require(known, root)
    faults: list[str] = []
    recognised: dict[Split, Recognised] = {}
    for split in SPLITS:
        try:
            raw = _mapped(known, split, _folder(known, root))
            recognised[split] = _checked_whole(known, split, raw, root)
        except ValueError as error:
            faults.append(str(error))
    return Checked(known.name, _folder(known, root), tuple(faults), recognised)


def recognise_any(split: AnySplit, raw: RawSplit, *, root: Path | None = None) -> Recognised | None:
    """Which known set has this whole split, whichever files it was read from; None for other data.

    A set of unknown content is known where the cache has it.
    """
    if split not in ("train", "test"):
        return None
    for known in KNOWN.values():
        with suppress(ValueError):
            return recognise(known, split, raw, vouched=_kept_by(known, root))
    return None


def open_split(known: KnownSet, split: Split, *, root: Path | None = None) -> RawSplit:
    """The stored arrays, mapped into memory: pages are read when they are touched.

    The mapping is copy-on-write: torch accepts it without a copy, and what is written to the arrays
    never reaches the files. What was noted when the whole was checked is looked at each time; where
    it is not as it was, the whole is checked again.
    """
    _require(known, root)
    folder = _folder(known, root)
    raw = _mapped(known, split, folder)
    try:
        check_form(known, split, raw)
        if take_note(folder, split, raw) != read_facts(folder, known).notes.get(split):
            _checked_whole(known, split, raw, root)
    except ValueError as error:
        raise ValueError(
            f"{folder} is damaged ({error}): run `upright data fetch {known.name}`"
        ) from error
    return raw


def save(
    known: KnownSet,
    splits: Mapping[Split, RawSplit],
    facts: Facts,
    *,
    root: Path | None = None,
) -> Path:
    """Store recognised splits, whole or not at all, in place of what was there; give the folder."""
    folder = _folder(known, root)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(folder)
    draft.mkdir()
    try:
        for split, raw in splits.items():
            images, labels = array_names(split)
            _write_array(draft / f"{images}.npy", raw.images)
            _write_array(draft / f"{labels}.npy", raw.labels)
        notes = {split: take_note(draft, split, raw) for split, raw in splits.items()}
        write_facts(draft, known, replace(facts, notes=notes))
        sync_folder(draft)
        _swap(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _checked_whole(known: KnownSet, split: Split, raw: RawSplit, root: Path | None) -> Recognised:
    """Recognise a stored split by its whole content, and note how its files are now."""
    folder = _folder(known, root)
    check_form(known, split, raw)
    note = take_note(folder, split, raw)  # before: what is written meanwhile is seen next time
    found = recognise(known, split, raw, vouched=_kept_by(known, root))
    facts = read_facts(folder, known)
    if facts.recognised and facts.notes.get(split) != note:
        with suppress(OSError):  # a set may lie where others may only read
            write_facts(folder, known, replace(facts, notes={**facts.notes, split: note}))
    return found


def _require(known: KnownSet, root: Path | None) -> None:
    if not is_installed(known, root=root):
        raise ValueError(
            f"{known.name} is not in {root or cache_folder()}:"
            f" run `upright data fetch {known.name}`"
        )


def _platform_cache() -> Path:
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def _folder(known: KnownSet, root: Path | None) -> Path:
    return (root or cache_folder()) / known.name


def _beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")


def _describe(known: KnownSet, root: Path) -> Stored:
    folder, there = root / known.name, is_installed(known, root=root)
    facts = read_facts(folder, known)
    return Stored(
        name=known.name,
        folder=folder,
        installed=there,
        counts=known.counts,
        classes=len(known.classes),
        origin=facts.origin if there else None,
        # A link to nothing, too, is something that may lie there.
        size_bytes=sum(file.lstat().st_size for file in folder.iterdir()) if there else 0,
        variant=in_words(facts.recognised),
    )


def _kept_by(known: KnownSet, root: Path | None) -> Callable[[Recognised], bool]:
    """What vouches for arrays that were accepted before: the facts beside them."""
    return lambda found: found in read_facts(_folder(known, root), known).recognised.values()


def _mapped(known: KnownSet, split: Split, folder: Path) -> RawSplit:
    images, labels = (_map(known, folder / f"{name}.npy") for name in array_names(split))
    return RawSplit(images, labels)


def _map(known: KnownSet, path: Path) -> NDArray[Any]:
    try:
        # Not np.load, which also opens archives: this is one array and nothing else.
        array: NDArray[Any] = npy.open_memmap(path, mode="c")
    # A damaged header can make the parser raise nearly anything.
    except Exception as error:
        raise ValueError(
            f"{path} is damaged ({error}): run `upright data fetch {known.name}`"
        ) from error
    return array


def _write_array(path: Path, array: NDArray[Any]) -> None:
    array = np.ascontiguousarray(array)
    with path.open("wb") as sink:
        npy.write_array_header_1_0(sink, npy.header_data_from_array_1_0(array))
        sink.write(array.data)  # np.save would not say why it cannot write, as on a full disk
        sink.flush()
        os.fsync(sink.fileno())


def _swap(draft: Path, folder: Path) -> None:
    """A folder cannot be renamed onto a full one, so the old one is first moved out of the way."""
    old = _beside(folder)
    if folder.exists():
        folder.rename(old)
    try:
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process has stored the same arrays meanwhile
            raise
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
