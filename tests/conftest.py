"""Settings that all tests share."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

from other_libraries import let_torchvision_be_imported

if TYPE_CHECKING:
    from tiny_runs import Call, Mishaps
    from upright.train import TrainedRun
    from upright.zoo import Entry

# No deadline: how long one example takes says more about the machine than about the code.
settings.register_profile("upright", deadline=None)
settings.load_profile("upright")

# Tensors are small here: on a busy machine, threads that wait for each other only slow them down.
torch.set_num_threads(1)

# In the background of a shell script Ctrl-C is ignored, and so by every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SCHEMAS = let_torchvision_be_imported()  # before any test imports what imports it


@pytest.fixture(scope="session")
def made_up_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of made-up records and arrays, with the report of it in ``report``."""
    import made_up_report
    from upright.cli import main

    folder = made_up_report.results(tmp_path_factory.mktemp("results"))
    assert main(["report", str(folder), "--out", str(folder / "report")]) == 0
    return folder


@pytest.fixture
def mishaps(monkeypatch: pytest.MonkeyPatch) -> Mishaps:
    """Make the network ``tiny`` known, and give what is to happen in its training passes."""
    import tiny_runs

    return tiny_runs.register_tiny(monkeypatch)


@pytest.fixture
def upright(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command in a folder with ``colours.npz``; gives exit code, stdout and stderr."""
    import tiny_runs

    return tiny_runs.command_beside_colours(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A run of a second; not to be changed."""
    import tiny_zoo

    return tiny_zoo.train_small(tmp_path_factory.mktemp("small") / "run")


@pytest.fixture(scope="session")
def packed_run(small_run: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """The run, packed for the zoo; not to be changed."""
    import tiny_zoo

    return tiny_zoo.zoo_of(small_run, tmp_path_factory.mktemp("zoo"))


@pytest.fixture
def entry(packed_run: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """The packed run in a zoo that a test may damage, and in which commands look."""
    import tiny_zoo

    return tiny_zoo.copy_of(packed_run, tmp_path / "zoo", monkeypatch)
