"""``torchrun -m upright``: one voice, one writer, one answer, and a stop that all ranks hear."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rank_pool import PATIENCE, RankPool
from tiny_runs import colours, lines, save_as_npz
from upright.cli import main
from upright.ranks import ALONE, Ranks, joined_ranks
from upright.train import RunDirectory


def command(ranks: Ranks, port: int, words: list[str]) -> tuple[int, str, str]:
    """Run a command as torchrun does; give its code and what it wrote to stdout and stderr."""
    os.environ.update(
        RANK=str(ranks.rank),
        WORLD_SIZE=str(ranks.size),
        LOCAL_RANK=str(ranks.rank),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return main(words), out.getvalue(), err.getvalue()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def figures(path: Path) -> dict[str, Any]:
    """What an evaluation found, without what differs by the clock."""
    result = json.loads(path.read_text())
    attacks = result["attacks"].values()
    for attack in attacks:
        attack.pop("seconds")
    return {name: result[name] for name in ("images", "natural_accuracy", "attacks")}


def test_train_and_evaluate_speak_and_write_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_as_npz(colours(count=600), tmp_path / "colours.npz")  # two chunks
    data = ["--data", f"npz:{tmp_path / 'colours.npz'}", "--device", "cpu"]
    out = ["--out", str(tmp_path / "run")]
    size = ["--steps", "4", "--batch", "11", "--model", "convnet0.25", "--sync-batch-norm"]
    ask = ["evaluate", str(tmp_path / "run"), *data, "--attack", "grid-3x1x3", "--details"]
    with RankPool(None) as pool:
        trained = pool.run(command, free_port(), ["train", "KL(rob, rnd)", *data, *out, *size])
        json_file = ["--json", str(tmp_path / "two.json")]
        asked = pool.run(command, free_port(), [*ask, *json_file])
    assert [code for code, _, _ in (*trained, *asked)] == [0, 0, 0, 0]
    assert trained[0][1].startswith("KL(rob, rnd): 4 steps in ")
    title = f"{tmp_path / 'run'} on npz:{tmp_path / 'colours.npz'}: 600 images"
    assert asked[0][1].splitlines()[0] == title
    assert (trained[1][1:], asked[1][1:]) == (("", ""), ("", ""))
    assert main([*ask, "--json", str(tmp_path / "one.json")]) == 0
    capsys.readouterr()
    assert figures(tmp_path / "two.json") == figures(tmp_path / "one.json")


def test_sigterm_to_torchrun_writes_one_checkpoint_of_the_step_at_which_all_stopped(
    tmp_path: Path,
) -> None:
    save_as_npz(colours(), tmp_path / "colours.npz")
    run = tmp_path / "run"
    words = [
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "upright"),
        *("train", "std", "--data", f"npz:{tmp_path / 'colours.npz'}", "--model", "convnet0.25"),
        *("--steps", "1000000", "--batch", "11", "--log-every", "1", "--device", "cpu"),
        *("--checkpoint-every", "1000000", "--out", str(run)),
    ]
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + PATIENCE
        while not (run / "log.jsonl").exists() and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert errors.count("stopped before step 1000000; --resume continues") == 1
    checkpoint = RunDirectory.open(run).load()
    assert checkpoint is not None
    steps = [line["step"] for line in lines(run)]
    assert steps == list(range(1, checkpoint.step + 1))
    assert len(list((run / "checkpoints").iterdir())) == 2


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")  # as other tools set it
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_ranks() as ranks:
        assert ranks == ALONE
