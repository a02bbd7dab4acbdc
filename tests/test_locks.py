"""One process at a time trains in a folder, and what a killed one left half done does not stay."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from made_up_records import made_up_record
from tiny_runs import colours, register_tiny, save_as_npz, tiny_recipe, tiny_run
from upright import files, record_files
from upright.cli import main
from upright.files import alone_in, remove_left_over, write_whole
from upright.workers.folder_claim import claimed

# The file alone, which needs no more than the standard library: torch is slow to import.
HOLD = """
import runpy, sys, time
from pathlib import Path
files, folder = runpy.run_path(sys.argv[1]), Path(sys.argv[2])
with files["alone_in"](folder):
    handle, name = files["open_temporary"](folder / "state")
    print(name, flush=True)
    time.sleep(600)
"""


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def holder(tmp_path: Path):
    """A process that holds the lock of a folder and is in the middle of writing a file there."""
    command = [sys.executable, "-c", HOLD, files.__file__, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.half_written = Path(process.stdout.readline().strip())
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_told_to_wait_until_the_first_has_died(tmp_path, holder) -> None:
    with pytest.raises(ValueError, match=r"another process is at work in .*; wait until"):
        alone_in(tmp_path).__enter__()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with alone_in(tmp_path):
        pass


def test_a_lock_is_free_again_when_its_work_is_done(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_in(tmp_path), pytest.raises(ValueError, match="another process"):
            alone_in(tmp_path).__enter__()


@pytest.mark.usefixtures("holder")
def test_two_commands_do_not_train_in_one_folder(tmp_path, capsys) -> None:
    save_as_npz(colours(), tmp_path / "colours.npz")
    data, out = f"npz:{tmp_path / 'colours.npz'}", str(tmp_path)
    command = ["train", "std", "--data", data, "--model", "convnet0.25", "--out", out, "--resume"]
    assert main([*command, "--steps", "2", "--batch", "4", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("upright: error: another process is at work in")
    assert not (tmp_path / "run.json").exists()


def refuse(_handle: int, _kind: int) -> None:
    raise OSError(errno.ENOLCK, "no locks available")


def test_a_disk_without_locks_is_warned_of(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with pytest.warns(RuntimeWarning, match="cannot be locked"), alone_in(tmp_path):
        write_whole(tmp_path / "state", b"content")
    assert (tmp_path / "state").read_bytes() == b"content"


def test_records_are_added_on_a_disk_without_locks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files.fcntl, "flock", refuse)
    record_files.append(tmp_path / "file.jsonl", made_up_record(tiny_recipe(), {"nat": 0.5}))
    assert len(record_files.read(tmp_path / "file.jsonl").records) == 1


def test_workers_do_not_share_a_disk_without_locks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with (
        pytest.raises(RuntimeError, match="two workers could train in it at once"),
        claimed(tmp_path, "first", node="there", patience=0.0),
    ):
        pytest.fail("claimed")


def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(
    tmp_path, holder
) -> None:
    write_whole(tmp_path / "state", b"new")
    assert holder.half_written.exists()
    holder.kill()
    holder.wait()
    write_whole(tmp_path / "state", b"newer")
    assert names(tmp_path) == [".lock", "state"]


def test_only_left_overs_of_the_named_file_go(tmp_path: Path) -> None:
    others = [".state-abcdefgh", ".other-abcdefgh.part", "state-abcdefgh.part", ".state-abc.part"]
    for name in [*others, ".state-abcdefgh.part"]:
        (tmp_path / name).touch()
    remove_left_over(tmp_path, "state")
    assert names(tmp_path) == sorted(others)


def test_a_resumed_run_first_frees_what_a_killed_one_left(tmp_path, monkeypatch) -> None:
    register_tiny(monkeypatch)
    tiny_run(tmp_path)
    left = [".run.json-abcdefgh.part", "checkpoints/.00000007.json-abcdefgh.part"]
    left += ["checkpoints/00000004.safetensors"]
    for name in left:
        (tmp_path / name).touch()
    tiny_run(tmp_path, resume=True)
    assert not [name for name in left if (tmp_path / name).exists()]
