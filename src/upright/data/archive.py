"""Take single files out of a tar archive that nobody vouches for.

Only regular files with a wanted name are written, each under its bare name, so no path of the
archive ever reaches the file system. An archive that tries to leave its folder is refused whole.
Archives are packed with gzip or not at all: of the other ways, a few bytes unpack to gigabytes.
"""

from __future__ import annotations

import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, Self

__all__ = ["is_archive", "unpack"]

_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_GZIP = b"\x1f\x8b"
_MOST_BYTES = 1 << 30  # some five times the largest; a few bytes may unpack to any number
_MOST_BYTES_IN_ALL = 1 << 30
_MOST_BYTES_OF_A_HEADER = 1 << 16
_MOST_BYTES_OF_HEADERS = 1 << 24
_MOST_MEMBERS = 10_000


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of a tar archive."""
    return path.name.endswith(_SUFFIXES)


def unpack(archive: Path, folder: Path, *, wanted: Collection[str]) -> None:
    """Write the archive's files whose names are `wanted` into `folder`."""
    try:
        with tarfile.open(archive, _packing(archive), tarinfo=_Member) as tar:
            for number, member in enumerate(_members(tar)):
                _refuse_escape(archive, member)
                _refuse_excess(archive, member, number)
                name = PurePosixPath(member.name).name
                if name in wanted and member.isreg():
                    _write(tar, member, folder / name)
    # A length that no memory has, in a header, is an OverflowError.
    except (
        tarfile.TarError,
        EOFError,
        OverflowError,
        zlib.error,
        BadGzipFile,
        RecursionError,
    ) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{archive.name} is truncated or not a tar archive: {text}") from error


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members one by one; their headers, which an archive keeps, are bounded together."""
    headers = 0
    for member in tar:
        headers += member.offset_data - member.offset
        if headers > _MOST_BYTES_OF_HEADERS:
            raise tarfile.ReadError(f"{headers} bytes of headers")
        yield member


def _packing(archive: Path) -> Literal["r:gz", "r:"]:
    with archive.open("rb") as stream:
        return "r:gz" if stream.read(len(_GZIP)) == _GZIP else "r:"


class _Member(tarfile.TarInfo):
    """A header of an archive; one that is itself large would be read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        too_large = not (member.isreg() or member.isdir()) and member.size > _MOST_BYTES_OF_A_HEADER
        if too_large or member.size < 0:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _refuse_escape(archive: Path, member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        raise ValueError(f"{archive.name} is refused: {member.name!r} in it is a link")
    path = PurePosixPath(member.name)
    if path.is_absolute() or PureWindowsPath(member.name).anchor or ".." in path.parts:
        raise ValueError(f"{archive.name} is refused: {member.name!r} lies outside its folder")
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise ValueError(f"{archive.name} is refused: {member.name!r} in it is no plain file")


def _refuse_excess(archive: Path, member: tarfile.TarInfo, number: int) -> None:
    """Refuse what lies too far in: what is not wanted is unpacked, too, to get past it."""
    if number >= _MOST_MEMBERS:
        raise ValueError(f"{archive.name} is refused: it has more files than any data set")
    if member.size > _MOST_BYTES:
        raise ValueError(f"{member.name!r} is larger than any file of a data set: {member.size}")
    if member.offset_data + member.size > _MOST_BYTES_IN_ALL:
        raise ValueError(f"{archive.name} is refused: it unpacks to more than any data set has")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None, "a regular member has content"
    with source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
