"""A finished evaluation is not lost: it is printed, and every output is tried, whatever fails."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from upright.cli import main
from upright.record_files import read
from upright.report.saved import read_saved

MODELS = """
import shutil, torch
from pathlib import Path

def make():
    weight = torch.randn(3, 192, generator=torch.Generator().manual_seed(1))
    return lambda images: (images - 0.4).flatten(1) @ weight.T

def spoiling(name):
    # Everything could be written when it began; while it computes, a folder becomes a file.
    def model(images):
        shutil.rmtree(name, ignore_errors=True)
        Path(name).write_text("in the way")
        return make()(images)
    return model

def no_json(): return spoiling("json")
def no_record(): return spoiling("record")
def no_save(): return spoiling("save")
def none(): return lambda images: (no_json()(images), no_record()(images), no_save()(images))[0]
"""
ASKED = [
    *("--data", "npz:data.npz", "--attack", "grid-3x1x3", "--device", "cpu"),
    *("--json", "json/result.json", "--record", "record/records.jsonl", "--save", "save/here"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "models.py").write_text(MODELS)
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez("data.npz", test_images=images, test_labels=np.arange(6) % 3)
    return tmp_path


def written(folder: Path) -> set[str]:
    """What was handed over, each part read again."""
    parts = set()
    if (file := folder / "json" / "result.json").exists():
        assert json.loads(file.read_text())["images"] == 6
        parts.add("json")
    if (file := folder / "record" / "records.jsonl").exists():
        assert len(read(file).records) == 1
        parts.add("record")
    if (file := folder / "save" / "here").exists():
        assert len(read_saved(file).models) == 1
        parts.add("save")
    return parts


@pytest.mark.parametrize("part", ["json", "record", "save"])
def test_one_output_that_fails_costs_no_other(folder, capsys, part):
    code = main(["evaluate", f"models.py:no_{part}", *ASKED])
    out, err = capsys.readouterr()
    assert code == 2
    assert "grid-3x1x3" in out
    assert written(folder) == {"json", "record", "save"} - {part}
    assert err.startswith(f"upright: error: --{part} {part}/")
    assert err.count("\n") == 1


def test_where_nothing_can_be_written_all_is_printed_and_each_failure_told(folder, capsys):
    assert main(["evaluate", "models.py:none", *ASKED]) == 2
    out, err = capsys.readouterr()
    assert "grid-3x1x3" in out
    assert [line.split()[2] for line in err.splitlines()] == ["--json", "--record", "--save"]
    assert written(folder) == set()


class Closed(io.StringIO):
    """Nobody reads it any more."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_who_has_left_costs_no_file(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["evaluate", "models.py:make", *ASKED]) == 2
    assert written(folder) == {"json", "record", "save"}
    assert capsys.readouterr().err == "upright: error: standard output: Broken pipe\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("stdout", ["full", "pipe"])
def test_as_a_program_neither_a_full_disk_nor_a_closed_pipe_costs_a_file(folder, stdout):
    command = [sys.executable, "-m", "upright", "evaluate", "models.py:make", *ASKED]
    if stdout == "full":
        handle = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, handle = os.pipe()
        os.close(reader)
    done = subprocess.run(
        command, stdout=handle, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(handle)
    assert written(folder) == {"json", "record", "save"}
    if stdout == "full":
        assert done.returncode == 2
        assert done.stderr == "upright: error: standard output: No space left on device\n"
    else:
        assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.usefixtures("folder")
def test_json_on_standard_output_comes_after_the_table_on_standard_error(capsys):
    options = [*ASKED[:6], "--json", "-", "--record", "record/records.jsonl"]
    assert main(["evaluate", "models.py:no_record", *options]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["images"] == 6
    assert "grid-3x1x3" in err
    assert "error: --record record/records.jsonl: " in err.splitlines()[-1]


@pytest.mark.usefixtures("folder")
def test_what_a_model_prints_while_its_answers_are_saved_is_no_part_of_the_json(capsys):
    Path("talking.py").write_text(
        "import models\n\n\n"
        "def make():\n"
        "    inner = models.make()\n\n"
        "    def model(images):\n"
        "        print('asked')\n"
        "        return inner(images)\n\n"
        "    return model\n"
    )
    assert main(["evaluate", "talking.py:make", *ASKED[:6], "--json", "-", "--save", "kept"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["images"] == 6
    assert "asked" in err


@pytest.mark.usefixtures("folder")
def test_the_answers_of_another_model_of_the_same_name_stay(capsys):
    asked = ["evaluate", "models.py:make", *ASKED[:6], "--save", "kept", "--name", "A"]
    assert main(asked) == 0
    saved = {file: file.read_bytes() for file in Path("kept").iterdir()}
    Path("models.py").write_text(MODELS.replace("manual_seed(1)", "manual_seed(2)"))
    assert main(asked) == 2
    assert "kept holds the answers of another model that is called A" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in Path("kept").iterdir()} == saved
    assert main([*asked[:-1], "B"]) == 0
    Path("models.py").write_text(MODELS)
    assert main(asked) == 0  # the model itself may be asked again
    assert len(list(Path("kept").iterdir())) == 3


@pytest.mark.usefixtures("folder")
def test_json_for_a_standard_output_that_is_closed_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["evaluate", "models.py:make", *ASKED[:6], "--json", "-"]) == 2
    assert "error: standard output: it is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "file", "message"),
    [
        ("--json", "x" * 251, "too long for the name of a file"),
        ("--record", "x" * 300, "too long for the name of a file"),
        ("--record", "dangling", "dangling is a link to nothing"),
        ("--json", "dangling", "dangling is a link to nothing"),
        ("--json", "pipe", "pipe is no plain file"),
        ("--state", "pipe", "pipe is no plain file"),
    ],
)
def test_what_cannot_be_written_is_named_before_anything_is_evaluated(
    folder, capsys, option, file, message
):
    (folder / "dangling").symlink_to(folder / "nowhere" / "file")
    os.mkfifo("pipe")
    assert main(["evaluate", "models.py:make", *ASKED[:6], option, file]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anything")
def test_a_read_only_file_is_named_before_anything_is_evaluated(folder, capsys):
    (folder / "mine.jsonl").touch(mode=0o444)
    assert main(["evaluate", "models.py:make", *ASKED[:6], "--record", "mine.jsonl"]) == 2
    assert "mine.jsonl may not be changed" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_tables_that_cannot_be_written_cost_no_other_file(capsys):
    Path("out").write_text("in the way")
    sections = "<!-- reproduce: summary -->\n<!-- end -->\n"
    Path("page.md").write_text(sections)
    options = ["--dry-run", "--table", "regspat", "--results", "results", "--device", "cpu"]
    assert main(["reproduce", *options, "--out", "out", "--markdown", "page.md"]) == 2
    out, err = capsys.readouterr()
    assert "regspat" in out
    assert [line.split()[2:4] for line in err.splitlines()] == [
        ["--out", f"out/tables.{ending}:"] for ending in ("md", "tex", "csv")
    ]
    assert "regspat" in Path("page.md").read_text()


def printing_to(stdout: int, *arguments: str, buffered: str) -> tuple[int, str]:
    """Run the program; give its status, and what it says on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "upright", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONUNBUFFERED": buffered},
    )
    os.close(stdout)
    return done.returncode, done.stderr


# Without a buffer the first line fails, with one the last flush.
@pytest.mark.parametrize("buffered", ["1", ""], ids=["each line", "all at once"])
@pytest.mark.parametrize("command", ["zoo list", "families", "--version", "train --help"])
def test_as_a_program_a_reader_who_has_enough_ends_it_as_any_other_program(command, buffered):
    reader, handle = os.pipe()
    os.close(reader)
    assert printing_to(handle, *command.split(), buffered=buffered) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("buffered", ["1", ""], ids=["each line", "all at once"])
def test_as_a_program_a_listing_that_a_full_disk_cuts_is_a_failure(buffered):
    full = os.open("/dev/full", os.O_WRONLY)
    status = printing_to(full, "families", buffered=buffered)
    assert status == (2, "upright: error: No space left on device\n")


@pytest.mark.usefixtures("folder")
def test_another_broken_pipe_than_that_of_standard_output_is_told(capsys):
    Path("piping.py").write_text(
        "def make():\n"
        "    def model(images):\n"
        "        raise BrokenPipeError(32, 'Broken pipe')\n\n"
        "    return model\n"
    )
    assert main(["evaluate", "piping.py:make", *ASKED[:6]]) == 2
    assert "Broken pipe" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_as_a_program_streams_that_were_closed_from_the_start_cost_no_file(folder, closed):
    command = [sys.executable, "-m", "upright", "evaluate", "models.py:make", *ASKED]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert written(folder) == {"json", "record", "save"}
    assert done.stderr == ""
    assert ("grid-3x1x3" in done.stdout) == ("1>&-" not in closed)
