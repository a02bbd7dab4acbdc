"""Files that are written whole: their permissions, links, pipes, and names that are long."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from made_up_records import made_up_record
from tiny_runs import tiny_recipe
from upright import files, record_files
from upright.files import alone_in, in_turn, write_whole

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links are those of POSIX")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@posix
@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077, 0o027])
def test_new_files_have_the_permissions_that_the_umask_leaves(mask: int, tmp_path: Path) -> None:
    with umask(mask):
        (tmp_path / "plain").touch()
        write_whole(tmp_path / "whole", b"content")
        record_files.append(tmp_path / "records", made_up_record(tiny_recipe(), {"nat": 0.5}))
        with alone_in(tmp_path):
            pass
    expected = mode(tmp_path / "plain")
    assert expected == 0o666 & ~mask
    assert {mode(tmp_path / name) for name in ("whole", "records", ".lock")} == {expected}


@posix
def test_a_file_that_was_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o640)
    write_whole(tmp_path / "file", b"new")
    assert mode(tmp_path / "file") == 0o640


@posix
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_written_through_to_its_target(there: bool, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, middle, link = tmp_path / "far" / "file", tmp_path / "middle", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    middle.symlink_to("far/file")
    link.symlink_to(middle)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert middle.is_symlink()
    assert target.read_bytes() == link.read_bytes() == b"new"
    assert names(tmp_path / "far") == ["file"]
    assert names(tmp_path) == ["far", "link", "middle"]


@posix
def test_links_that_lead_nowhere_are_refused_and_stay(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links") as caught:
        write_whole(tmp_path / "a", b"new")
    assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, str(tmp_path / "a"))
    assert names(tmp_path) == ["a", "b"]


@posix
def test_a_link_to_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    with pytest.raises(IsADirectoryError) as caught:
        write_whole(tmp_path / "link", b"new")
    assert caught.value.filename == str(tmp_path / "link")
    assert names(tmp_path) == ["folder", "link"]
    assert names(tmp_path / "folder") == []


@posix
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_whole(tmp_path / "link", b"content")
    reader.join(timeout=10)
    assert found == [b"content"]
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_name_may_be_as_long_as_the_disk_takes(letter: str, tmp_path: Path) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    left = files.open_temporary(path)
    os.close(left[0])
    write_whole(path, b"content")
    assert names(tmp_path) == [path.name]


WAITS = """
import runpy, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
in_turn = runpy.run_path(sys.argv[1])["in_turn"]
for _ in range(30):
    with in_turn(Path(sys.argv[2]), busy="busy"):
        counter = Path(sys.argv[3])
        number = int(counter.read_text())
        time.sleep(0.0005)
        counter.write_text(str(number + 1))
"""


@posix
def test_processes_take_turns_and_their_lock_goes(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    paths = [files.__file__, str(tmp_path / "lock"), str(tmp_path / "counter")]
    pool = [subprocess.Popen([sys.executable, "-c", WAITS, *paths]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in pool] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "90"
    assert names(tmp_path) == ["counter"]


@posix
def test_who_has_to_wait_is_told(tmp_path: Path) -> None:
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        with in_turn(tmp_path / "lock", busy="never"):
            holds.set()
            goes_on.wait(timeout=10)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(timeout=10)
    threading.Timer(0.05, goes_on.set).start()
    with (
        pytest.warns(RuntimeWarning, match="busy here"),
        in_turn(tmp_path / "lock", busy="busy here"),
    ):
        pass
    thread.join()
