"""Read a known set from files on disk, in any layout that it may have, and check what was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from upright.data.archive import is_archive, unpack
from upright.data.download import md5_of
from upright.data.formats import read_files
from upright.data.known import SPLITS, FileLayout, KnownSet
from upright.data.npz import read_npz
from upright.data.raw import RawSplit
from upright.data.recognise import Recognised, recognise
from upright.data.registry import Split

__all__ = ["Gathered", "read_known"]


@dataclass(frozen=True, eq=False)
class Gathered:
    """The splits of a known set, and which variant of it each of them is."""

    splits: Mapping[Split, RawSplit]
    recognised: Mapping[Split, Recognised]


@dataclass(frozen=True)
class _File:
    """A file of a set, and the archive that it was unpacked from, if any."""

    path: Path
    archive: Path | None


def read_known(known: KnownSet, paths: Sequence[Path], *, scratch: Path) -> Gathered:
    """The splits of a known set, from folders, single files, archives or one `.npz`.

    Args:
        known: The set that the files should hold.
        paths: Where the files are; what lies in several folders is put together.
        scratch: An empty folder to unpack archives into.
    """
    try:
        if any(path.suffix == ".npz" for path in paths):
            return _from_npz(known, paths)
        files = _gather(known, paths, scratch)
        return _from_files(known, _choose(known, files), files)
    except ValueError as error:
        places = ", ".join(str(path) for path in paths)
        raise ValueError(
            f"no {known.name} in {places}: {error}; get it anew with"
            f" `upright data fetch {known.name}`, or the official files from {known.page}"
        ) from error


def _from_npz(known: KnownSet, paths: Sequence[Path]) -> Gathered:
    if len(paths) > 1:
        raise ValueError("one .npz holds all of a set: give that file alone")
    splits: dict[Split, RawSplit] = {}
    recognised: dict[Split, Recognised] = {}
    for split in SPLITS:
        data = read_npz(paths[0], split=split)
        splits[split] = RawSplit(data.images.numpy(), data.labels.numpy())
        recognised[split] = _accept(known, split, splits[split], [_File(paths[0], None)])
    return Gathered(splits, recognised)


def _from_files(known: KnownSet, layout: FileLayout, files: Mapping[str, _File]) -> Gathered:
    splits: dict[Split, RawSplit] = {}
    recognised: dict[Split, Recognised] = {}
    for split in SPLITS:
        parts = [files[name] for name in layout.files(split)]
        splits[split] = read_files(layout.kind, [part.path for part in parts])
        recognised[split] = _accept(known, split, splits[split], parts)
    return Gathered(splits, recognised)


def _accept(known: KnownSet, split: Split, raw: RawSplit, files: Sequence[_File]) -> Recognised:
    try:
        return recognise(known, split, raw, vouched=lambda _: _all_published(known, files))
    except ValueError as error:
        suspects = ", ".join(_suspects(known, [file.path for file in files]))
        raise ValueError(f"{error} (altered or wrong: {suspects})") from error


def _all_published(known: KnownSet, files: Sequence[_File]) -> bool:
    """Whether each file, or the archive that it came in, has its published MD5 sum."""
    archives = {file.archive for file in files if file.archive is not None}
    sums = {*known.md5s.values(), *(archive.md5 for archive in known.archives)}
    published = {archive for archive in archives if md5_of(archive) in sums}
    return all(
        file.archive in published or md5_of(file.path) == known.md5s.get(file.path.name)
        for file in files
    )


def _suspects(known: KnownSet, files: Sequence[Path]) -> list[str]:
    """The files that their published MD5 sums give away, or all where none does."""
    wrong = [f.name for f in files if f.name in known.md5s and md5_of(f) != known.md5s[f.name]]
    return wrong or [file.name for file in files]


def _gather(known: KnownSet, paths: Sequence[Path], scratch: Path) -> dict[str, _File]:
    """Files by name: those given, those unpacked, those in a folder or one level below it."""
    wanted = {name for layout in known.layouts for name in layout.all_files}
    found: dict[str, _File] = {}
    for number, path in enumerate(paths):
        if not path.exists():
            raise ValueError(f"{path} does not exist")
        place = _opened(path, scratch / str(number), wanted)
        archive = None if place == path else path
        files = [place] if place.is_file() else [*place.glob("*/*"), *place.glob("*")]
        found |= {
            file.name: _File(file, archive)
            for file in files
            if file.name in wanted and file.is_file()
        }
    return found


def _opened(path: Path, scratch: Path, wanted: Collection[str]) -> Path:
    if not (path.is_file() and is_archive(path)):
        return path
    scratch.mkdir()
    unpack(path, scratch, wanted=wanted)
    return scratch


def _choose(known: KnownSet, files: Collection[str]) -> FileLayout:
    """The layout that is complete; else what is missing from the one that has most files there."""
    if not files:
        names = ", ".join(layout.name for layout in known.layouts)
        raise ValueError(f"none of its files is there (the files of {names}, or one .npz)")
    best = max(known.layouts, key=lambda layout: _completeness(layout, files))
    if missing := [name for name in best.all_files if name not in files]:
        raise ValueError(f"{best.name} is incomplete, without {', '.join(missing)}")
    return best


def _completeness(layout: FileLayout, files: Collection[str]) -> tuple[bool, int]:
    present = sum(name in files for name in layout.all_files)
    return present == len(layout.all_files), present
