"""What goes wrong in training: interruptions, divergence and full disks lose no work."""

from __future__ import annotations

import json
import math
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch import Tensor, nn

from tiny_runs import (
    Mishaps,
    colours,
    fail,
    lines,
    names,
    newest,
    sending,
    tiny_recipe,
    tiny_run,
)
from upright.models import network
from upright.train import RunDirectory, train

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


class TestInterruption:
    @pytest.mark.parametrize("model", ["tiny", "tiny-dropout"])
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stopped_run_continues_to_the_same_bits(
        self, tmp_path: Path, mishaps: Mishaps, model: str, number: signal.Signals
    ) -> None:
        tiny_run(tmp_path / "unbroken", model=model)
        mishaps[2] = sending(number)
        steps = []
        for _ in range(5):
            stopped = tiny_run(tmp_path / "broken", resume=True, model=model)
            assert not stopped.finished
            assert names(tmp_path / "broken")[-1] == f"{stopped.step:08d}.safetensors"
            steps.append(stopped.step)
        assert steps == [2, 4, 6, 8, 10]  # the step that was under way is finished and kept
        mishaps.clear()
        assert tiny_run(tmp_path / "broken", resume=True, model=model).finished
        assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")

    def test_a_run_that_lost_steps_continues_to_the_same_bits(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        mishaps[5] = fail
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                tiny_run(tmp_path / "broken", resume=True)
        mishaps.clear()
        tiny_run(tmp_path / "broken", resume=True)
        assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")

    def test_signals_act_as_before_once_the_run_has_ended(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        mishaps[3] = sending(signal.SIGINT)
        tiny_run(tmp_path)
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers

    def test_the_second_ctrl_c_does_not_wait(self, tmp_path: Path, mishaps: Mishaps) -> None:
        def twice(images: Tensor) -> Tensor:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return images

        mishaps[5] = twice
        # A shell starts what runs in the background with Ctrl-C switched off.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                tiny_run(tmp_path)
        finally:
            signal.signal(signal.SIGINT, before)
        assert names(tmp_path)[-1] == "00000003.safetensors"

    def test_a_run_in_a_thread_works_without_signals(self, tmp_path: Path) -> None:
        thread = threading.Thread(target=tiny_run, args=(tmp_path / "thread",))
        thread.start()
        thread.join()
        tiny_run(tmp_path / "main")
        assert newest(tmp_path / "thread") == newest(tmp_path / "main")

    def test_a_finished_run_stays_as_it_is(self, tmp_path: Path) -> None:
        tiny_run(tmp_path)
        before, log = newest(tmp_path), (tmp_path / "log.jsonl").read_text()
        again = tiny_run(tmp_path, resume=True)
        assert again.finished
        assert again.step == 12
        assert newest(tmp_path) == before
        assert (tmp_path / "log.jsonl").read_text() == log


class TestDivergence:
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(
        self, tmp_path: Path, mishaps: Mishaps, value: float
    ) -> None:
        mishaps[5] = lambda images: images * value
        with pytest.raises(ValueError, match=r"the loss .* no longer finite at step 5") as caught:
            tiny_run(tmp_path, seed=8)
        for words in ("KL(rob, Wo-2)", "learning rate 0.05", "batch 11", "float32", "seed 8"):
            assert words in str(caught.value)
        assert f"the last good checkpoint is kept in {tmp_path}; try" in str(caught.value)
        assert names(tmp_path)[-1] == "00000003.safetensors"
        checkpoint = RunDirectory.open(tmp_path).load()
        assert checkpoint is not None
        assert all(tensor.isfinite().all() for tensor in checkpoint.tensors.values())
        assert all(line["step"] < 5 for line in lines(tmp_path))

    def test_a_checkpoint_is_spoken_of_only_where_there_is_one(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        mishaps[2] = lambda images: images * math.nan
        with pytest.raises(ValueError, match=r"finite at step 2 .* seed 0; try a lower"):
            tiny_run(tmp_path)
        assert RunDirectory.open(tmp_path).load() is None

    def test_weights_that_are_not_finite_are_never_saved_though_the_loss_still_was(
        self, tmp_path: Path
    ) -> None:
        class Poisoned(nn.Linear):
            """In the fourth step the root of a distance of 0: its value is 0, its slope is nan."""

            passes = -1  # a look at what it gives comes before the first step

            def forward(self, images: Tensor) -> Tensor:
                self.passes += 1
                logits = super().forward(images.flatten(1))
                root = (self.bias - self.bias.detach()).abs().sqrt()
                return logits + root if self.passes == 4 else logits

        network("poisoned", "poisoned")(lambda **_: Poisoned(3 * 8 * 8, 3))
        recipe = tiny_recipe(model="poisoned", objective="std", learning_rate=0.01)
        with pytest.raises(ValueError, match="a weight is no longer finite at step 4"):
            train(recipe, tmp_path, data=colours(), checkpoint_every=1)
        checkpoint = RunDirectory.open(tmp_path).load()
        assert checkpoint is not None
        assert checkpoint.step == 3
        assert all(tensor.isfinite().all() for tensor in checkpoint.tensors.values())


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the operating system refuse to write more than so many bytes to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestFullDisk:
    def test_is_an_error_message_and_no_corrupt_file_and_the_run_continues_after(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        mishaps[4] = sending(signal.SIGTERM)
        broken = tmp_path / "broken"
        tiny_run(broken)
        mishaps.clear()
        before = {file: file.read_bytes() for file in (broken / "checkpoints").iterdir()}
        with (
            largest_file(len(newest(broken)) // 2),
            pytest.raises(OSError, match=r"checkpoint of step 6 .*step 4 is kept.* --resume"),
        ):
            tiny_run(broken, resume=True)
        after = {file: file.read_bytes() for file in (broken / "checkpoints").iterdir()}
        assert after == before
        tiny_run(broken, resume=True)
        assert newest(broken) == newest(tmp_path / "unbroken")

    def test_at_the_first_checkpoint_says_that_there_is_none_yet(self, tmp_path: Path) -> None:
        with (
            largest_file(1000),
            pytest.raises(OSError, match=r"checkpoint of step 3 .*there is none yet"),
        ):
            tiny_run(tmp_path)
        assert names(tmp_path) == []

    def test_at_the_log_names_the_file_and_the_run_continues_after(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        mishaps[4] = sending(signal.SIGTERM)
        broken, log = tmp_path / "broken", tmp_path / "broken" / "log.jsonl"
        tiny_run(broken)
        mishaps.clear()
        log.write_text(json.dumps({"step": 0, "note": "x" * len(newest(broken))}) + "\n")
        with (
            largest_file(log.stat().st_size + 10),
            pytest.raises(OSError, match=r"cannot write to .*log\.jsonl .* --resume"),
        ):
            tiny_run(broken, resume=True)
        tiny_run(broken, resume=True)
        assert newest(broken) == newest(tmp_path / "unbroken")
        assert [line["step"] for line in lines(broken)] == [0, 6, 8, 10, 12]


class TestDamagedCheckpoint:
    @pytest.mark.filterwarnings("ignore::upright.train.checkpoint.DamagedCheckpoint")
    def test_it_does_not_take_the_place_of_a_whole_one_among_those_that_are_kept(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        mishaps[10] = sending(signal.SIGTERM)
        tiny_run(tmp_path)
        mishaps.clear()
        folder = tmp_path / "checkpoints"
        (folder / "00000010.safetensors").write_bytes(b"")
        assert tiny_run(tmp_path, resume=True).finished
        (folder / "00000012.safetensors").write_bytes(b"")
        checkpoint = RunDirectory.open(tmp_path).load()
        assert checkpoint is not None
        assert checkpoint.step == 9


class TestDamagedLog:
    @pytest.mark.parametrize(
        "line", [b"\xff\n", b'{"step": Infinity}\n', b"[" * 100_000 + b"\n", b'{"step": 2}']
    )
    def test_lines_that_are_damaged_are_dropped_and_the_run_continues(
        self, tmp_path: Path, mishaps: Mishaps, line: bytes
    ) -> None:
        mishaps[4] = sending(signal.SIGTERM)
        tiny_run(tmp_path)
        mishaps.clear()
        with (tmp_path / "log.jsonl").open("ab") as log:
            log.write(line)
        assert tiny_run(tmp_path, resume=True).finished
        assert [line["step"] for line in lines(tmp_path)] == [2, 4, 6, 8, 10, 12]
