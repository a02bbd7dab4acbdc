"""A minute of the ordeal, in which nothing goes wrong; and what it would say if something did."""

from __future__ import annotations

import importlib
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT / name) for name in ("src", "benchmarks", "fuzz", "tests/helpers")]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits and signals are those of Linux"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # of a process with threads
]


@pytest.fixture
def ordeal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.setattr(sys, "path", [*PATHS, *sys.path])
    return importlib.import_module


def test_nothing_goes_wrong_in_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [
        *(sys.executable, ROOT / "benchmarks" / "ordeal.py", "--seed", "2", "--minutes", "10"),
        *("--kills", "16", "--inputs", "444", "--soak-minutes", "0.2", "--workers", "1"),
    ]
    path = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, "--json", file], env=environment, capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(file.read_text())
    assert figures["troubles"] == []
    assert set(figures["kills"]["kills"].values()) == {4}
    assert figures["inputs"]["inputs"] == 444
    assert figures["soak"]["cycles"] >= 1
    assert [left.name for left in tmp_path.iterdir()] == [file.name]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(*_: object) -> None:
    raise KeyError("x")


def altered(*_: object) -> None:
    raise importlib.import_module("guarded").AlteredError("x")


def swell(*_: object) -> None:
    """Take memory, and give a plain error all the same.

    From the system itself: what a process has freed before would be taken again unseen.
    """
    held = mmap.mmap(-1, 100 << 20)
    for page in range(0, len(held), mmap.PAGESIZE):
        held[page] = 1
    raise ValueError(f"no room for {len(held)}")


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (die, "crash"),
        (fail, "traceback"),
        (altered, "altered"),
        (swell, "memory"),
        (lambda *_: time.sleep(60), "hang"),
        (lambda *_: os.system("true"), "escape"),
    ],
)
def test_each_kind_of_bad_reader_is_seen(
    read: Callable[..., None],
    kind: str,
    ordeal: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    # A worker is a fork of all that the tests hold, which may take seconds on a busy machine.
    hang_s = 5.0 if kind == "hang" else 30.0
    faults, bad = faults_of(read, lambda: None, ordeal, monkeypatch, hang_s)
    assert faults == {kind: bad}
    assert len(list((tmp_path / "crashes").iterdir())) == bad > 0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone forgets")
def test_memory_is_seen_where_a_worker_has_had_more_before(
    ordeal: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inherited = [bytearray(b"x") * (1 << 20) for _ in range(200)]
    faults, bad = faults_of(swell, inherited.clear, ordeal, monkeypatch, 30.0)
    assert faults == {"memory": bad}
    assert len(list((tmp_path / "crashes").iterdir())) == bad > 0


def faults_of(
    read: Callable[..., None],
    first: Callable[[], None],
    ordeal: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    hang_s: float,
) -> tuple[Counter[str], int]:
    """Read five inputs, some of them badly; say what was seen, and how many were bad."""
    inputs, guard = ordeal("ordeal_inputs"), ordeal("guard")
    monkeypatch.setattr(inputs, "HANG_S", hang_s)
    monkeypatch.setattr(inputs, "STATED_BYTES", 64 << 20)

    def sometimes(data: bytes, folder: Path) -> None:
        first()
        if data[:1] == b"!":
            read(data, folder)

    def edited(_: object, rng: random.Random) -> bytes:
        return b"!" if rng.random() < 0.2 else b"."

    monkeypatch.setattr(inputs, "edited", edited)
    monkeypatch.setattr(inputs, "TARGETS", {"x": guard.Target("x", sometimes, lambda: [b"."])})
    inputs._seeds.cache_clear()
    figures = inputs.read_inputs(5, seed=0, workers=1, limit_s=60)
    bad = sum(inputs.input_of(0, "x", number) == b"!" for number in range(figures.inputs))
    inputs._seeds.cache_clear()
    assert figures.inputs == 5
    return figures.faults, bad


def test_an_input_is_the_same_whenever_it_is_made(ordeal: Callable[[str], ModuleType]) -> None:
    inputs = ordeal("ordeal_inputs")
    made = [inputs.input_of(1, "objective", number) for number in range(50)]
    assert made == [inputs.input_of(1, "objective", number) for number in range(50)]
    assert len(set(made)) > 40
    assert not set(made) & set(inputs._seeds("objective")[:1])


@pytest.mark.parametrize(
    ("last", "faults"),
    [
        ("pass", set()),
        ("(folder / 'half.part').touch()", {"made up: left behind"}),
        ("(folder / 'count').write_text('7')", {"made up: other outcome"}),
        ("(folder / 'count').unlink(); (folder / 'x').touch()", None),
        ("raise KeyError", {"made up: failed end"}),
    ],
)
def test_what_a_killed_job_loses_or_leaves_is_seen(
    last: str,
    faults: set[str] | None,
    ordeal: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that counts to five; begun again, it does something wrong."""
    kills, jobs = ordeal("ordeal_kills"), ordeal("ordeal_jobs")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def count(arguments: Sequence[str]) -> int:
        folder = Path(arguments[0])
        begun_again = (folder / "count").exists()
        for number in range(5):
            (folder / "count").write_text(str(number))
            time.sleep(0.01)
        if begun_again:
            exec(last)
        return 0

    def counted(folder: Path) -> object:
        file = folder / "count"
        return file.read_text() if file.exists() else None

    job = jobs.Job("made up", count, lambda folder: [str(folder)], counted)
    lane = kills.Lane(tmp_path, random.Random(0))
    lane.kill(job, 6, time.monotonic() + 60)
    assert lane.figures.kills["made up"] == 6
    wanted = {"made up: other outcome", "made up: left behind", "made up: missing"}
    assert set(lane.figures.faults) == (wanted if faults is None else faults)


def test_the_table_is_written_between_its_marks(
    ordeal: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    figures = {
        **{"seed": 5, "commit": "abc", "seconds": 60.0},
        "inputs": {"asked": 9, "inputs": 7, "faults": {"hang": 2}, "by_target": {"x": 7}},
    }
    (tmp_path / "f.json").write_text(json.dumps(figures))
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- reproduce: ordeal -->\nold\n<!-- end -->\nb\n")
    options = ["--from", str(tmp_path / "f.json"), "--markdown", str(page)]
    assert ordeal("ordeal").main(options) == 1  # two hangs, and two inputs too few
    assert "old" not in page.read_text()
    assert "| longer than 10 s | 2 |" in page.read_text()
    assert page.read_text().startswith("a\n<!-- reproduce: ordeal -->\n")
