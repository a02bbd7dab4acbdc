"""Training: it learns, stops and continues where it was, and loses nothing to what goes wrong."""

from __future__ import annotations

import json
import math
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from tiny_runs import Plan, colours, names, newest, register_tiny, sending, tiny_recipe
from upright import evaluate
from upright.data import load_data
from upright.models import network
from upright.train import Recipe, RunDirectory, TrainedRun, load_network, train, train_together


@pytest.fixture(autouse=True)
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    return register_tiny(monkeypatch)


def tiny_run(path: Path, *, resume: bool = False, **changes: Any) -> TrainedRun:
    options = {"checkpoint_every": 3, "log_every": 2}
    recipe = tiny_recipe(**changes)
    return train(recipe, path, data=colours(), resume=resume, **options)


def fail(_images: Tensor) -> Tensor:
    """An entry of a plan: the step does not come to its end."""
    raise ZeroDivisionError


def lines(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


class TestLearning:
    def test_the_loss_falls_on_glyphs_and_the_network_is_the_one_of_the_checkpoint(
        self, tmp_path: Path
    ) -> None:
        recipe = Recipe(
            objective="AT(mix, rnd)",
            data="glyphs",
            train_images=256,
            model="convnet",
            steps=60,
            batch=32,
            learning_rate=0.02,
        )
        run = train(recipe, tmp_path, log_every=15)
        log = lines(tmp_path)
        assert [line["step"] for line in log] == [15, 30, 45, 60]
        assert log[-1]["total"] < 0.8 * log[0]["total"]
        assert log[-1]["natural_accuracy"] > log[0]["natural_accuracy"] + 0.1
        assert run.finished
        seen = load_data("glyphs", split="train", limit=256)
        found = [
            evaluate(model, (seen.images, seen.labels), attacks=["rnd"])
            for model in (run.model, load_network(tmp_path))
        ]
        assert found[0].natural_accuracy == found[1].natural_accuracy > 0.3

    @pytest.mark.parametrize(
        ("objective", "absent"),
        [
            ("std", {"transformed_loss", "penalty", "transformed_accuracy"}),
            ("std*", {"natural_loss", "penalty", "natural_accuracy"}),
            ("KL(rob, Wo-2)", set()),
        ],
    )
    def test_the_log_has_the_parts_that_the_objective_has(
        self, tmp_path: Path, objective: str, absent: set[str]
    ) -> None:
        tiny_run(tmp_path, objective=objective)
        parts = {
            "total",
            "natural_loss",
            "transformed_loss",
            "penalty",
            "natural_accuracy",
            "transformed_accuracy",
        }
        others = {"step", "learning_rate", "images_per_second"}
        for line in lines(tmp_path):
            assert line.keys() == (parts - absent) | others
            assert all(math.isfinite(value) for value in line.values())

    def test_a_line_has_the_means_of_its_interval(self, tmp_path: Path) -> None:
        recipe = tiny_recipe(drops=(0.5,))
        train(recipe, tmp_path / "each", data=colours(), log_every=1)
        train(recipe, tmp_path / "fifth", data=colours(), log_every=5)
        each, fifth = lines(tmp_path / "each"), lines(tmp_path / "fifth")
        assert [line["step"] for line in fifth] == [5, 10, 12]
        for line, start in zip(fifth, (0, 5, 10), strict=True):
            of_interval = each[start : int(line["step"])]
            for part in ("total", "penalty", "transformed_accuracy"):
                mean = sum(single[part] for single in of_interval) / len(of_interval)
                assert line[part] == pytest.approx(mean, rel=1e-5)
        assert [line["learning_rate"] for line in each] == pytest.approx([0.05] * 6 + [0.005] * 6)

    def test_runs_side_by_side_are_what_each_is_alone(self, tmp_path: Path) -> None:
        recipes = [
            tiny_recipe(model="tiny-dropout"),
            tiny_recipe(seed=1, steps=7, objective="L2(mix, S-PGD)"),
            tiny_recipe(objective="std"),
        ]
        runs = train_together(
            {tmp_path / "both" / str(i): recipe for i, recipe in enumerate(recipes)},
            data=colours(),
            checkpoint_every=4,
        )
        assert [run.step for run in runs] == [12, 7, 12]
        for i, recipe in enumerate(recipes):
            train(recipe, tmp_path / "alone" / str(i), data=colours())
            assert newest(tmp_path / "both" / str(i)) == newest(tmp_path / "alone" / str(i))

    @pytest.mark.parametrize("option", ["checkpoint_every", "log_every"])
    def test_an_interval_of_no_steps_is_refused(self, tmp_path: Path, option: str) -> None:
        with pytest.raises(ValueError, match=rf"{option} must be at least 1, but is 0"):
            train(tiny_recipe(), tmp_path, data=colours(), **{option: 0})
        assert not (tmp_path / "run.json").exists()

    @pytest.mark.parametrize("change", [{"model": "tiney"}, {"batch": 49}])
    def test_a_recipe_that_cannot_be_followed_leaves_the_folder_free(
        self, tmp_path: Path, change: dict[str, Any]
    ) -> None:
        with pytest.raises(ValueError, match=r"no network is called|do not fill a batch"):
            tiny_run(tmp_path, **change)
        assert tiny_run(tmp_path).finished

    def test_tensorboard_events_have_what_the_log_has(self, tmp_path: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        recipe = tiny_recipe()
        train(recipe, tmp_path, data=colours(), log_every=4, tensorboard=True)
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        for part in ("total", "natural_accuracy", "learning_rate"):
            logged = [(line["step"], line[part]) for line in lines(tmp_path)]
            found = [(event.step, event.value) for event in events.Scalars(part)]
            assert found == [(step, pytest.approx(value)) for step, value in logged]


class TestInterruption:
    @pytest.mark.parametrize("model", ["tiny", "tiny-dropout"])
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stopped_run_continues_to_the_same_bits(
        self, tmp_path: Path, plan: Plan, model: str, number: signal.Signals
    ) -> None:
        tiny_run(tmp_path / "unbroken", model=model)
        plan[2] = sending(number)
        steps = []
        for _ in range(5):
            stopped = tiny_run(tmp_path / "broken", resume=True, model=model)
            assert not stopped.finished
            assert names(tmp_path / "broken")[-1] == f"{stopped.step:08d}.safetensors"
            steps.append(stopped.step)
        assert steps == [2, 4, 6, 8, 10]  # the step that was under way is finished and kept
        plan.clear()
        assert tiny_run(tmp_path / "broken", resume=True, model=model).finished
        assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")

    def test_a_run_that_lost_steps_continues_to_the_same_bits(
        self, tmp_path: Path, plan: Plan
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        plan[5] = fail
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                tiny_run(tmp_path / "broken", resume=True)
        plan.clear()
        tiny_run(tmp_path / "broken", resume=True)
        assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")

    def test_signals_act_as_before_once_the_run_has_ended(self, tmp_path: Path, plan: Plan) -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        plan[3] = sending(signal.SIGINT)
        tiny_run(tmp_path)
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers

    def test_the_second_ctrl_c_does_not_wait(self, tmp_path: Path, plan: Plan) -> None:
        def twice(images: Tensor) -> Tensor:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return images

        plan[5] = twice
        with pytest.raises(KeyboardInterrupt):
            tiny_run(tmp_path)
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


class TestLog:
    def test_it_continues_without_a_line_twice_or_a_torn_one(
        self, tmp_path: Path, plan: Plan
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        plan[9] = fail  # after the log's line of step 8 and the checkpoint of step 6
        with pytest.raises(ZeroDivisionError):
            tiny_run(tmp_path / "broken")
        log = tmp_path / "broken" / "log.jsonl"
        assert lines(tmp_path / "broken")[-1]["step"] == 8
        with log.open("a") as file:
            file.write('{"step": 10, "tot')  # as a kill in the middle of a line would leave it
        plan.clear()
        tiny_run(tmp_path / "broken", resume=True)
        for one, other in zip(
            lines(tmp_path / "broken"), lines(tmp_path / "unbroken"), strict=True
        ):
            one.pop("images_per_second")
            other.pop("images_per_second")
            assert one == other

    def test_tensorboard_shows_no_step_twice(self, tmp_path: Path, plan: Plan) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        options: dict[str, Any] = {"checkpoint_every": 3, "log_every": 2, "tensorboard": True}
        plan[9] = fail
        with pytest.raises(ZeroDivisionError):
            train(tiny_recipe(), tmp_path, data=colours(), **options)
        plan.clear()
        train(tiny_recipe(), tmp_path, data=colours(), resume=True, **options)
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        assert [event.step for event in events.Scalars("total")] == [2, 4, 6, 8, 10, 12]


class TestDivergence:
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(
        self, tmp_path: Path, plan: Plan, value: float
    ) -> None:
        plan[5] = lambda images: images * value
        with pytest.raises(ValueError, match=r"the loss .* no longer finite at step 5") as caught:
            tiny_run(tmp_path, seed=8)
        for words in ("KL(rob, Wo-2)", "learning rate 0.05", "batch 11", "float32", "seed 8"):
            assert words in str(caught.value)
        assert names(tmp_path)[-1] == "00000003.safetensors"
        checkpoint = RunDirectory.open(tmp_path).load()
        assert checkpoint is not None
        assert all(tensor.isfinite().all() for tensor in checkpoint.tensors.values())
        assert all(line["step"] < 5 for line in lines(tmp_path))

    def test_weights_that_are_not_finite_are_never_saved_though_the_loss_still_was(
        self, tmp_path: Path
    ) -> None:
        class Poisoned(nn.Linear):
            """In the fourth pass the root of a distance of 0: its value is 0, its slope is nan."""

            passes = 0

            def forward(self, images: Tensor) -> Tensor:
                self.passes += 1
                distance = (self.bias - self.bias.detach()).abs() * (self.passes == 4)
                root = distance.sqrt() if self.passes == 4 else distance
                return super().forward(images.flatten(1)) + root

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
        self, tmp_path: Path, plan: Plan
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        plan[4] = sending(signal.SIGTERM)
        broken = tmp_path / "broken"
        tiny_run(broken)
        plan.clear()
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
        self, tmp_path: Path, plan: Plan
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        plan[4] = sending(signal.SIGTERM)
        broken, log = tmp_path / "broken", tmp_path / "broken" / "log.jsonl"
        tiny_run(broken)
        plan.clear()
        log.write_text(json.dumps({"step": 0, "note": "x" * len(newest(broken))}) + "\n")
        with (
            largest_file(log.stat().st_size + 10),
            pytest.raises(OSError, match=r"cannot write to .*log\.jsonl .* --resume"),
        ):
            tiny_run(broken, resume=True)
        tiny_run(broken, resume=True)
        assert newest(broken) == newest(tmp_path / "unbroken")
        assert [line["step"] for line in lines(broken)] == [0, 6, 8, 10, 12]
