"""A connection to a Ray cluster, on which signals and what is printed stay this program's."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import upright
from upright.origin import commit

__all__ = ["connected", "import_ray"]


def import_ray() -> Any:
    """Ray, which is imported only where it is used, and told to report nothing to anybody."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # what it holds back, it would write in the end
    try:
        import ray
    except ImportError as error:
        raise ValueError("Ray is missing: pip install 'upright[ray]'") from error
    return ray


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, see ``ray_engine``; gives Ray, and leaves the cluster in the end."""
    ray = import_ray()
    # "local" is a new cluster; without an address, Ray takes any that it finds on this machine.
    place = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_that_it_answers(place)
    with _sigterm_kept(), contextlib.redirect_stdout(_NotFromRay(sys.stdout)):
        ray.init(
            address=place,
            runtime_env=_environment(),
            include_dashboard=False if place == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        try:
            _let_sigterm_interrupt()
            yield ray
        finally:
            # What it has held back of its logs, it would write now.
            with contextlib.redirect_stdout(io.StringIO()):
                ray.shutdown()


def _check_that_it_answers(address: str) -> None:
    """Check that the cluster answers: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise ValueError(f"no Ray cluster answers at {address}: {error}") from error


def _environment() -> dict[str, Any]:
    """What workers are given: this very package, its commit, and where the data lie."""
    known = commit()
    variables = {} if known is None else {"UPRIGHT_COMMIT": known}
    if data := os.environ.get("UPRIGHT_DATA"):
        variables["UPRIGHT_DATA"] = str(Path(data).resolve())
    return {"py_modules": [str(Path(upright.__file__).parent)], "env_vars": variables}


class _NotFromRay(io.TextIOBase):
    """Passes on what is written, but for what Ray's threads write: pages for every death."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        from_ray = threading.current_thread().name.startswith("ray_")
        return len(text) if from_ray else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Give SIGTERM its handler back in the end."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _let_sigterm_interrupt() -> None:
    """Let SIGTERM do what Ctrl-C does; Ray's own handler would not wait for checkpoints."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
