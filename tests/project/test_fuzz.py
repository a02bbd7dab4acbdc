"""Hostile input to everything that reads input: refused in one line, and nothing else happens.

The targets are those of the folder ``fuzz``; here they get their seeds, in ``test_ordeal.py``
random edits of these.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard is Linux's")

sys.path.insert(0, str(FUZZ))
from guard import Escape, Hang, Target, attempt, warm_up  # noqa: E402
from targets import TARGETS  # noqa: E402


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    found = TARGETS[request.param]
    found = replace(found, seeds=cache(found.seeds))  # some take longer to make than to read
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hostile input may well be suspicious
        warm_up(found, tmp_path / "warm")
        yield found


def test_each_reader_accepts_its_first_seed_and_survives_all(
    target: Target, tmp_path: Path
) -> None:
    accepted = [attempt(target, seed, tmp_path) for seed in target.seeds()]
    assert accepted[0] or target.name in ("model", "labels")  # of which nothing is there


def reading(read: object) -> Target:
    return Target("made up", lambda data, folder: read(data, folder), lambda: [b""])


def test_the_guard_sees_a_file_outside_the_folder(tmp_path: Path) -> None:
    with pytest.raises(Escape):
        attempt(reading(lambda _, folder: (folder / "../x").write_text("x")), b"", tmp_path)
    with pytest.raises(Escape):
        attempt(reading(lambda *_: (tmp_path / "box").rename(tmp_path / "y")), b"", tmp_path)
    assert attempt(reading(lambda _, folder: (folder / "x").write_text("x")), b"", tmp_path)


def test_the_guard_sees_code_that_runs(tmp_path: Path) -> None:
    import pickle

    with pytest.raises(Escape):
        attempt(
            reading(lambda data, _: pickle.loads(data)), b"cos\nsystem\n(S'true'\ntR.", tmp_path
        )


def test_the_guard_sees_too_much_memory_and_time(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(MemoryError):
        attempt(reading(lambda *_: bytearray(2 << 30)), b"", tmp_path)
    monkeypatch.setattr("guard.SECONDS", 1)

    def hang(*_: object) -> None:
        while True:
            pass

    with pytest.raises(Hang):
        attempt(reading(hang), b"", tmp_path)


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("a\nb"), ValueError(), OSError("x")])
def test_the_guard_wants_errors_that_people_can_read(error: Exception, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        attempt(reading(fail), b"", tmp_path)
