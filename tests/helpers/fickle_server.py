"""A web server on this machine that can be told to misbehave, one answer after another."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Mood = Literal[
    "good",
    "no-range",
    "no-length",
    "cut",
    "cut-no-range",
    "stall",
    "slow",
    "altered",
    "wrong-piece",
    "missing",
    "busy",
]


class FickleServer(ThreadingHTTPServer):
    """Serves `files`; each request takes the next of `moods`, the last one stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.moods: list[Mood] = ["good"]
        self.ranges: list[str | None] = []
        self.paths: list[str] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_mood(self) -> Mood:
        return self.moods.pop(0) if len(self.moods) > 1 else self.moods[0]

    def handle_error(self, *_: object) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: FickleServer

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        self.server.paths.append(self.path)
        mood, content = self.server.next_mood(), self.server.files.get(self.path)
        if mood == "missing" or content is None:
            return self.send_error(404)
        if mood == "busy":
            return self.send_error(503)
        if mood == "altered":
            content = content[:-1] + bytes([content[-1] ^ 1])
        return self._answer(mood, content)

    def _answer(self, mood: Mood, content: bytes) -> None:
        start = 0 if mood in ("no-range", "cut-no-range") else self._start()
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        rest = content[start:]
        self.send_response(206 if start else 200)
        if start:
            told = start + 1 if mood == "wrong-piece" else start
            self.send_header("Content-Range", f"bytes {told}-{len(content) - 1}/{len(content)}")
        if mood != "no-length":
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        return self._send(mood, rest)

    def _send(self, mood: Mood, rest: bytes) -> None:
        half, pause_s = len(rest) // 2, 0.3 if mood == "slow" else 0
        self.wfile.write(rest[:half])
        if mood == "stall":
            self.server.closing.wait(timeout=10)
        if mood in ("stall", "cut", "cut-no-range"):
            return
        for start in range(half, len(rest), half // 4 + 1):
            time.sleep(pause_s)
            self.wfile.write(rest[start : min(start + half // 4 + 1, len(rest))])

    def _start(self) -> int:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(asked[1]) if asked else 0

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read `ranges` and `paths`."""


@contextmanager
def serving() -> Iterator[FickleServer]:
    with FickleServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
