"""Take single files out of a tar archive that nobody vouches for.

Only regular files with a wanted name are written, each under its bare name, so no path of the
archive ever reaches the file system. An archive that tries to leave its folder is refused whole.
"""

from __future__ import annotations

import shutil
import tarfile
import zlib
from collections.abc import Collection
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath, PureWindowsPath

__all__ = ["is_archive", "unpack"]

_SUFFIXES = (".tar.gz", ".tgz", ".tar")


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of a tar archive."""
    return path.name.endswith(_SUFFIXES)


def unpack(archive: Path, folder: Path, *, wanted: Collection[str]) -> None:
    """Write the archive's files whose names are `wanted` into `folder`."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                _refuse_escape(archive, member)
                name = PurePosixPath(member.name).name
                if name in wanted and member.isreg():
                    _write(tar, member, folder / name)
    except (tarfile.TarError, EOFError, zlib.error, BadGzipFile) as error:
        raise ValueError(f"{archive.name} is truncated or not a tar archive: {error}") from error


def _refuse_escape(archive: Path, member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        raise ValueError(f"{archive.name} is refused: {member.name!r} in it is a link")
    path = PurePosixPath(member.name)
    if path.is_absolute() or PureWindowsPath(member.name).anchor or ".." in path.parts:
        raise ValueError(f"{archive.name} is refused: {member.name!r} lies outside its folder")
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{archive.name} is refused: {member.name!r} in it is no plain file")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None, "a regular member has content"
    with source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
