"""What a process keeps of its memory, by what the kernel counts in processes of their own."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys

import pytest
import torch

from upright import demo, heap
from upright.__main__ import main

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")

FREE_AND_ASK = """
import resource
import torch
{before}
def ask():
    for _ in range(4):
        layers = [torch.ones(7 << 20) for _ in range(9)]  # 28 MiB each
        del layers
def count():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
ask()
began = count()
ask()
print((count() - began) * resource.getpagesize() >> 20)
"""
KEEP = "from upright.heap import keep_freed; keep_freed()"


def cleared(before: str, **environment: str) -> int:
    """How many MiB the kernel cleared anew, of the 1,008 that are asked for."""
    rules = ("MALLOC_", "GLIBC_")
    own = {key: value for key, value in os.environ.items() if not key.startswith(rules)}
    done = subprocess.run(
        [sys.executable, "-c", FREE_AND_ASK.format(before=before)],
        env=own | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_library_leaves_the_heap_as_it_is():
    # By chance something small lies behind the blocks and keeps them, in one process of ten.
    assert any(cleared("import upright") > 500 for _ in range(5))


def test_the_program_keeps_what_it_frees():
    assert cleared(KEEP) < 30


def test_the_program_and_the_workers_of_the_demo_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []
    monkeypatch.setattr(heap, "keep_freed", lambda: calls.append("program"))
    monkeypatch.setattr(demo, "keep_freed", lambda: calls.append("worker"))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: calls.append(str(count)))
    monkeypatch.setattr(sys, "argv", ["upright", "families"])
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 0
    finally:
        signal.signal(signal.SIGINT, interrupt)
    demo._begin_worker()
    assert calls == ["program", "worker", "1"]
    assert "shift" in capsys.readouterr().out


@pytest.mark.parametrize(
    "rule",
    [
        {"MALLOC_TRIM_THRESHOLD_": "100000"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=100000"},
    ],
)
def test_a_rule_of_the_users_holds(rule):
    assert cleared(KEEP, **rule) > 500


def test_without_the_option_nothing_happens(monkeypatch):
    monkeypatch.setattr(heap, "_mallopt", lambda: None)
    heap.keep_freed()


def test_older_releases_are_asked_for_less(monkeypatch):
    asked = []

    def older(option: int, size: int) -> int:
        asked.append((option, size))
        return int(option == -1 or size <= 32 << 20)

    monkeypatch.setattr(heap, "_mallopt", lambda: older)
    monkeypatch.setattr(heap, "_has_rule", lambda: False)
    heap.keep_freed()
    assert asked == [(-3, 256 << 20), (-3, 32 << 20), (-1, 1 << 30)]
