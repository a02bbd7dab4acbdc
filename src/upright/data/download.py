"""Download one file: resumed when broken off, patient with servers, checked by its MD5 sum.

What has arrived lies in FILE.part until it is whole and its sum is right, then becomes FILE.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

__all__ = ["Patience", "Progress", "download", "md5_of"]

Progress = Callable[[str, int, int | None], None]
"""Told the file's name, the bytes that have arrived and, where known, the bytes in all."""

_BLOCK_BYTES = 1 << 18
_MOST_BYTES = 1 << 30  # some five times the largest; a server must not fill the disk
_WORTH_ANOTHER_TRY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


@dataclass(frozen=True)
class Patience:
    """How long to wait for a silent server, and after how many fruitless tries to give up."""

    timeout_s: float = 30.0
    """Seconds of silence that are borne."""
    tries: int = 4
    """Tries in a row that bring nothing."""
    pause_s: float = 2.0
    """Seconds between two tries."""


def download(
    url: str,
    target: Path,
    *,
    md5: str,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> None:
    """Fetch `url` into `target`, or go on where an earlier call was broken off.

    Args:
        url: Of the file.
        target: Where it is to lie; it appears there only when it is whole and its sum is right.
        md5: The sum that it must have.
        patience: How long to wait for the server.
        progress: Told how far it is.
    """
    if target.exists() and md5_of(target) == md5:
        return
    part = target.with_name(f"{target.name}.part")
    receiver = _Receiver(url, part, patience or Patience(), progress or _silent)
    # A piece left from before may belong to another file; then a download from the start decides.
    found = ""
    for _ in range(2 if part.exists() else 1):
        receiver.until_whole()
        found = md5_of(part)
        if found == md5:
            part.replace(target)
            return
        part.unlink()
    raise ValueError(
        f"{url} is not the published file: its MD5 is {found}, not {md5};"
        " try again later, or fetch it in another way"
    )


def md5_of(path: Path) -> str:
    """MD5 sum of a file, in hexadecimal digits."""
    # Two files of one sum can be made, but not another file of a sum that has been published.
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _silent(_file: str, _done: int, _total: int | None) -> None:
    pass


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@dataclass(frozen=True)
class _Receiver:
    url: str
    part: Path
    patience: Patience
    progress: Progress

    def until_whole(self) -> None:
        """Try until the file is whole; tries count as fruitless while the piece does not grow."""
        fruitless, largest = 0, _size(self.part)
        while True:
            trouble = self._try()
            if trouble is None:
                return
            size = _size(self.part)
            fruitless = 0 if size > largest else fruitless + 1
            largest = max(largest, size)
            if fruitless >= self.patience.tries:
                raise ValueError(
                    f"{self.url} cannot be downloaded: {trouble}; check the connection and run the"
                    f" command again, it goes on after the {size} bytes that have arrived"
                )
            time.sleep(self.patience.pause_s)

    def _try(self) -> str | None:
        """One request; what went wrong if it may go better next time, None when all has arrived.

        An error that names a file is the disk's, and no server can help it.
        """
        try:
            return None if self._request() else "the connection was closed early"
        except HTTPError as error:
            with error:
                return self._answer(error)
        except (OSError, HTTPException) as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise
            return str(error) or type(error).__name__

    def _answer(self, error: HTTPError) -> str | None:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if error.headers.get("Content-Range") == f"bytes */{_size(self.part)}":
                return None
            self.part.unlink(missing_ok=True)
            return "the server has less than had arrived"
        answer = f"the server answers {error.code} {error.reason}"
        if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _WORTH_ANOTHER_TRY:
            raise ValueError(
                f"{self.url} cannot be downloaded: {answer}; fetch it in another way"
            ) from error
        return answer

    def _request(self) -> bool:
        start = _size(self.part)
        asked = {"Range": f"bytes={start}-"} if start else {}
        request = Request(self.url, headers={"User-Agent": "upright", **asked})
        with urlopen(request, timeout=self.patience.timeout_s) as response:
            return self._store(response, start if _goes_on(response, start) else 0)

    def _store(self, response: HTTPResponse, start: int) -> bool:
        """Write what comes after `start` bytes; whether that is all there is."""
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdecimal() else None
        done = start
        with self._open(start) as sink:
            # read1 gives what has arrived, so a time-out loses nothing.
            while block := response.read1(_BLOCK_BYTES):
                self._add(sink, block)
                done += len(block)
                if done > _MOST_BYTES:
                    self.part.unlink()
                    raise ValueError(f"{self.url} sends more than any file of a data set has")
                self.progress(self.part.name.removesuffix(".part"), done, total)
        return total is None or done == total

    def _open(self, start: int) -> BinaryIO:
        # Each time: who has fetched another set meanwhile may have removed the empty folder.
        self.part.parent.mkdir(parents=True, exist_ok=True)
        return self.part.open("ab" if start else "wb")

    def _add(self, sink: BinaryIO, block: bytes) -> None:
        """Write at once: what is still to be written when the file is closed could fail then."""
        try:
            sink.write(block)
            sink.flush()
        except OSError as error:
            error.filename = str(self.part)
            raise


def _goes_on(response: HTTPResponse, start: int) -> bool:
    """Whether the answer is the rest that was asked for; some servers send all of it again."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return False
    if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise HTTPException("the server sends another piece than was asked for")
    return True
