"""One worker at a time in a run's folder, and only where all nodes see the same files."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch

from tiny_runs import colours, register_tiny, save_as_npz, tiny_recipe
from upright.workers import Task, perform, run_folder
from upright.workers.folder_claim import Claim, claimed, newest_step, read_claim
from upright.workers.ray_worker import Attempt, NotSharedError, kept, token_in, work_on


@pytest.fixture
def task(tmp_path, monkeypatch):
    register_tiny(monkeypatch)
    save_as_npz(colours(), tmp_path / "colours.npz")
    recipe = tiny_recipe(data=f"npz:{tmp_path / 'colours.npz'}")
    return Task(plan=recipe, attacks=("grid-3x3x3",))


def attempt_at(task, runs, token, **changes):
    fields = {"name": "first", "device": "cpu", "checkpoint_every": 3, "patience": 0.0}
    return Attempt(task=task, runs=runs, token=token, **{**fields, **changes})


def test_a_worker_does_what_perform_does_and_says_who_it_is(tmp_path, task):
    with token_in(tmp_path / "runs") as token:
        attempt = attempt_at(task, tmp_path / "runs", token, sharing=4)
        (record,) = work_on(attempt, node="there")
    assert not (tmp_path / "runs" / token).exists()
    (alone,) = perform(task, tmp_path / "alone", device=torch.device("cpu"))
    assert record.measured == alone.measured
    assert (record.beside, alone.beside) == (4, 1)
    claim = read_claim(run_folder(task, tmp_path / "runs"))
    assert (claim.attempt, claim.node, claim.step) == ("first", "there", 0)


def test_tokens_of_killed_drivers_go_and_those_of_others_stay(tmp_path):
    leave = (
        "import os, sys; from pathlib import Path\n"
        "from upright.workers.ray_worker import token_in\n"
        "with token_in(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", leave, str(tmp_path)], check=False)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    with token_in(tmp_path) as one, token_in(tmp_path) as other:
        assert {file.name for file in tmp_path.iterdir()} == {one, other}
        assert left.name not in (one, other)
    assert not list(tmp_path.iterdir())


def test_a_node_that_does_not_see_the_runs_begins_nothing(tmp_path, task):
    attempt = attempt_at(task, tmp_path / "elsewhere", ".token-0")
    with pytest.raises(NotSharedError, match=r"the node there does not see .* all nodes share"):
        work_on(attempt, node="there")
    assert not (tmp_path / "elsewhere").exists()


def test_who_comes_second_waits_until_the_first_has_left(tmp_path):
    order = []

    def second():
        with claimed(tmp_path, "second", node="b", patience=60):
            order.append("second in")

    with claimed(tmp_path, "first", node="a", patience=0):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        assert read_claim(tmp_path).attempt == "first"
        order.append("first out")
    thread.join()
    assert order == ["first out", "second in"]
    assert read_claim(tmp_path).attempt == "second"


def test_who_waits_too_long_is_told_for_whom(tmp_path, task):
    folder = run_folder(task, tmp_path)
    with token_in(tmp_path) as token, claimed(folder, "zombie", node="a", patience=0):
        claim = read_claim(folder)
        with pytest.raises(RuntimeError, match=rf"process {claim.process} on a is at work in"):
            work_on(attempt_at(task, tmp_path, token), node="b")
        assert read_claim(folder) == claim
    assert newest_step(folder) == 0


def test_a_claim_tells_the_step_of_the_newest_checkpoint(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in ("00000003.json", "00000006.json", "00000009.safetensors", ".x.json", "note.json"):
        (tmp_path / "checkpoints" / name).touch()
    with claimed(tmp_path, "it", node="a", patience=0):
        assert read_claim(tmp_path).step == newest_step(tmp_path) == 6


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"attempt": "it"}', b"\xff"])
def test_half_a_claim_is_none(tmp_path, content):
    (tmp_path / ".claim").write_bytes(content)
    assert read_claim(tmp_path) is None
    with claimed(tmp_path, "it", node="a", patience=0):
        assert isinstance(read_claim(tmp_path), Claim)


def test_what_is_kept_changes_with_every_checkpoint_and_state(tmp_path):
    seen = {kept(tmp_path)}
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "log.jsonl").touch()
    assert kept(tmp_path) in seen
    for name in ("checkpoints/00000003.json", "evaluation-1.safetensors"):
        (tmp_path / name).touch()
        assert kept(tmp_path) not in seen
        seen.add(kept(tmp_path))
    (tmp_path / "evaluation-1.safetensors").write_bytes(b"more")
    assert kept(tmp_path) not in seen
