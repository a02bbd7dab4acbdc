"""Take single files out of a tar archive that nobody vouches for.

Only regular files with a wanted name are written, each under its bare name, so no path of the
archive ever reaches the file system. An archive that tries to leave its folder is refused whole.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zlib
from collections.abc import Collection
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Self

__all__ = ["is_archive", "unpack"]

_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_MOST_BYTES = 1 << 30  # some five times the largest; a few bytes may unpack to any number
_MOST_BYTES_OF_A_HEADER = 1 << 20


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of a tar archive."""
    return path.name.endswith(_SUFFIXES)


def unpack(archive: Path, folder: Path, *, wanted: Collection[str]) -> None:
    """Write the archive's files whose names are `wanted` into `folder`."""
    try:
        with tarfile.open(archive, tarinfo=_Member) as tar:
            for member in tar:
                _refuse_escape(archive, member)
                name = PurePosixPath(member.name).name
                if name in wanted and member.isreg():
                    _write(tar, member, folder / name)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, BadGzipFile) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{archive.name} is truncated or not a tar archive: {text}") from error


class _Member(tarfile.TarInfo):
    """A header of an archive; one that is itself large would be read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if not (member.isreg() or member.isdir()) and member.size > _MOST_BYTES_OF_A_HEADER:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _refuse_escape(archive: Path, member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        raise ValueError(f"{archive.name} is refused: {member.name!r} in it is a link")
    path = PurePosixPath(member.name)
    if path.is_absolute() or PureWindowsPath(member.name).anchor or ".." in path.parts:
        raise ValueError(f"{archive.name} is refused: {member.name!r} lies outside its folder")
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{archive.name} is refused: {member.name!r} in it is no plain file")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.size > _MOST_BYTES:
        raise ValueError(f"{member.name!r} is larger than any file of a data set: {member.size}")
    source = tar.extractfile(member)
    assert source is not None, "a regular member has content"
    with source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
