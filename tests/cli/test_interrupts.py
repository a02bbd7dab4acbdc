"""Ctrl-C to the program, as real signals to real processes: a line and status 130, at any time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from upright import interrupts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

MODELS = """
import os, sys, time
def stubborn():
    def answer(images):
        try:
            print("ready", flush=True)  # inside: the signal may come before the next line
            time.sleep(60)
        finally:
            print("putting away", flush=True)
            time.sleep(60)
    return answer
class Late:
    def __del__(self, kill=os.kill, process=os.getpid()):
        kill(process, 2)
def late():
    sys.late = Late()  # dropped with sys, after Python has put away its signal handlers
    return lambda images: images.flatten(1)[:, :10]
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "upright", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], library: str) -> None:
    """Until the process has mapped a library: it is in the middle of its imports then."""
    until = time.monotonic() + 60
    while library not in Path(f"/proc/{process.pid}/maps").read_text():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.9])
def test_while_the_program_starts(seconds):
    process = start("data", "list")
    wait_for(process, "_multiarray_umath")  # numpy's, which comes before torch
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    if process.returncode != 0:  # on a fast machine the list may be out by then
        assert (process.returncode, err) == (130, "upright: interrupted\n")
    assert seconds or process.returncode == 130


def test_a_second_one_ends_at_once_what_takes_its_time_to_stop(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    model = f"{tmp_path / 'models.py'}:stubborn"
    process = start("evaluate", model, "--data", "glyphs", "--limit", "2", "--device", "cpu")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "putting away\n"
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "upright: interrupted\n")
    assert time.monotonic() - began < 20


def test_what_is_done_stays_done(tmp_path):
    """Ctrl-C in the last moment, when the report is out: nothing is left to interrupt."""
    (tmp_path / "models.py").write_text(MODELS)
    model = f"{tmp_path / 'models.py'}:late"
    process = start("evaluate", model, "--data", "glyphs", "--limit", "2", "--device", "cpu")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "natural" in out


def test_only_the_program_takes_ctrl_c():
    """Not a user's script that imports the library, nor this test."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    code = "import signal, upright; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("argv", "orig_argv", "expected"),
    [
        (["/bin/upright"], ["python", "/bin/upright"], True),
        (["upright.exe"], ["upright.exe"], True),
        (["-m"], ["python", "-m", "upright"], True),
        (["mine.py"], ["python", "mine.py"], False),
        (["/bin/pytest"], ["python", "/bin/pytest"], False),
        ([], [], False),
        (["/bin/upright"], ["python", "-c", "spawn", "--multiprocessing-fork"], False),
    ],
)
def test_the_program_is_told_from_scripts_and_workers(monkeypatch, argv, orig_argv, expected):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert interrupts._is_program() == expected


def test_where_ctrl_c_is_ignored_it_stays_ignored():
    """As behind ``nohup``, or in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupts.end_at_once()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
