"""Downloads from a local server that serves good, cut, slow, altered and missing files."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path

import numpy as np
import pytest

from fickle_server import FickleServer, serving
from upright.data.download import Patience, download

CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
HASTY = Patience(timeout_s=1.0, tries=2, pause_s=0.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FickleServer]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as running:
        running.files["/file"] = CONTENT
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "file"


def get(server: FickleServer, target: Path, **options: object) -> None:
    download(f"{server.url}/file", target, md5=MD5, patience=HASTY, **options)


def part(target: Path) -> Path:
    return target.with_name("file.part")


def leave_part(target: Path, content: bytes) -> None:
    target.parent.mkdir()
    part(target).write_bytes(content)


def assert_whole(target: Path) -> None:
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_good_file_arrives_and_progress_counts_its_bytes(
    server: FickleServer, target: Path
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    get(server, target, progress=lambda *step: seen.append(step))
    assert_whole(target)
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


def test_a_file_that_is_there_is_not_asked_for_again(server: FickleServer, target: Path) -> None:
    get(server, target)
    get(server, target)
    assert server.ranges == [None]


def test_a_connection_that_breaks_is_resumed(server: FickleServer, target: Path) -> None:
    server.moods = ["cut", "cut", "good"]
    get(server, target)
    assert_whole(target)
    assert server.ranges == [None, "bytes=500000-", "bytes=750000-"]


def test_a_connection_that_falls_silent_is_resumed(server: FickleServer, target: Path) -> None:
    server.moods = ["stall", "good"]
    get(server, target)
    assert_whole(target)
    assert server.ranges == [None, "bytes=500000-"]


def test_a_slow_server_may_take_longer_than_the_time_out(
    server: FickleServer, target: Path
) -> None:
    server.moods = ["slow"]
    begin = time.perf_counter()
    get(server, target)
    assert time.perf_counter() - begin > HASTY.timeout_s
    assert_whole(target)
    assert server.ranges == [None]


def test_a_broken_off_run_is_resumed_by_the_next_one(server: FickleServer, target: Path) -> None:
    server.moods = ["cut", "busy"]
    with pytest.raises(ValueError, match=r"503 .*goes on after the 500000 bytes"):
        get(server, target)
    assert not target.exists()
    server.moods, server.ranges = ["good"], []
    get(server, target)
    assert_whole(target)
    assert server.ranges == ["bytes=500000-"]


def test_a_server_that_ignores_ranges_starts_over(server: FickleServer, target: Path) -> None:
    server.moods = ["cut", "no-range"]
    get(server, target)
    assert_whole(target)


def test_a_file_that_always_comes_truncated_is_given_up(server: FickleServer, target: Path) -> None:
    server.moods = ["cut-no-range"]
    with pytest.raises(ValueError, match=r"/file cannot be downloaded: the connection was closed"):
        get(server, target)
    assert not target.exists()
    assert len(server.ranges) == 3


def test_a_file_of_unknown_length_arrives(server: FickleServer, target: Path) -> None:
    server.moods = ["no-length"]
    get(server, target)
    assert_whole(target)


def test_an_altered_file_is_refused_and_not_kept(server: FickleServer, target: Path) -> None:
    server.moods = ["altered"]
    with pytest.raises(ValueError, match=rf"/file is not the published file: .* not {MD5}"):
        get(server, target)
    assert list(target.parent.iterdir()) == []


def test_a_missing_file_is_named_at_once(server: FickleServer, target: Path) -> None:
    server.moods = ["missing"]
    with pytest.raises(
        ValueError, match=r"/file cannot be downloaded: .* 404 Not Found; .*another way"
    ):
        get(server, target)
    assert len(server.ranges) == 1


def test_a_busy_server_is_asked_again(server: FickleServer, target: Path) -> None:
    server.moods = ["busy", "good"]
    get(server, target)
    assert_whole(target)


def test_an_unreachable_server_is_named(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(ValueError, match=f"{url} cannot be downloaded: .*check the connection"):
            download(url, target, md5=MD5, patience=HASTY)


def test_a_piece_of_another_file_costs_one_fresh_start(server: FickleServer, target: Path) -> None:
    leave_part(target, b"x" * 1000)
    get(server, target)
    assert_whole(target)
    assert server.ranges == ["bytes=1000-", None]


def test_a_piece_that_is_already_whole_needs_no_more_bytes(
    server: FickleServer, target: Path
) -> None:
    leave_part(target, CONTENT)
    get(server, target)
    assert_whole(target)


def test_a_piece_longer_than_the_file_is_thrown_away(server: FickleServer, target: Path) -> None:
    leave_part(target, CONTENT + b"more")
    get(server, target)
    assert_whole(target)


def test_a_piece_from_the_wrong_place_is_not_appended(server: FickleServer, target: Path) -> None:
    leave_part(target, CONTENT[:400_000])
    server.moods = ["wrong-piece", "good"]
    get(server, target)
    assert_whole(target)


def test_a_server_that_never_ends_is_stopped_and_nothing_is_kept(
    server: FickleServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upright.data.download._MOST_BYTES", len(CONTENT) // 2)
    with pytest.raises(ValueError, match="sends more than any file of a data set has"):
        get(server, target)
    assert list(target.parent.iterdir()) == []


def test_a_length_that_is_no_number_is_passed_over(
    server: FickleServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = HTTPMessage.get
    monkeypatch.setattr(
        HTTPMessage,
        "get",
        lambda self, name, *rest: (
            "many" if name == "Content-Length" else headers(self, name, *rest)
        ),
    )
    server.moods = ["no-length"]
    get(server, target)
    assert_whole(target)
