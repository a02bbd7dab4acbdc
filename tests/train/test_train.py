"""Training: it learns, its log says how, and runs side by side do not disturb each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiny_runs import Mishaps, colours, fail, lines, newest, tiny_recipe, tiny_run
from upright import evaluate
from upright.data import load_data
from upright.origin import origin_on
from upright.records import Origin
from upright.train import Recipe, RunDirectory, load_network, loop, train, train_together

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


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
        others = {"step", "averaged_steps", "learning_rate", "images_per_second"}
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


class TestWhatTrained:
    @pytest.fixture
    def under(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Origin]:
        """Let what follows be of another commit."""

        def change(commit: str) -> Origin:
            now = replace(origin_on("cpu"), commit=commit)
            monkeypatch.setattr(loop, "origin_on", lambda *_, **__: now)
            return now

        return change

    def trained_by(self, path: Path) -> tuple[Origin, ...]:
        checkpoint = RunDirectory.open(path).load()
        assert checkpoint is not None
        return checkpoint.trained_by

    def test_it_is_kept_with_the_checkpoint(self, tmp_path: Path) -> None:
        tiny_run(tmp_path)
        assert self.trained_by(tmp_path) == (origin_on("cpu"),)

    def test_a_resumption_under_another_commit_leaves_a_trace(
        self, tmp_path: Path, mishaps: Mishaps, under: Callable[[str], Origin]
    ) -> None:
        first = under("first")
        mishaps[9] = fail
        with pytest.raises(ZeroDivisionError):
            tiny_run(tmp_path)
        mishaps.clear()
        assert self.trained_by(tmp_path) == (first,)
        second = under("second")
        tiny_run(tmp_path, resume=True)
        assert self.trained_by(tmp_path) == (first, second)

    def test_a_finished_run_that_is_resumed_is_not_trained(
        self, tmp_path: Path, under: Callable[[str], Origin]
    ) -> None:
        first = under("first")
        tiny_run(tmp_path)
        under("second")
        tiny_run(tmp_path, resume=True)
        assert self.trained_by(tmp_path) == (first,)


class TestLog:
    def test_it_continues_without_a_line_twice_or_a_torn_one(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        tiny_run(tmp_path / "unbroken")
        mishaps[9] = fail  # after the log's line of step 8 and the checkpoint of step 6
        with pytest.raises(ZeroDivisionError):
            tiny_run(tmp_path / "broken")
        log = tmp_path / "broken" / "log.jsonl"
        assert lines(tmp_path / "broken")[-1]["step"] == 8
        with log.open("a") as file:
            file.write('{"step": 10, "tot')  # as a kill in the middle of a line would leave it
        mishaps.clear()
        tiny_run(tmp_path / "broken", resume=True)
        for one, other in zip(
            lines(tmp_path / "broken"), lines(tmp_path / "unbroken"), strict=True
        ):
            one.pop("images_per_second")
            other.pop("images_per_second")
            assert one == other

    def test_a_line_says_over_how_many_steps_it_averages(
        self, tmp_path: Path, mishaps: Mishaps
    ) -> None:
        """Of a run that resumes between two lines: steps 5 and 6 of the second are forgotten."""
        options: dict[str, Any] = {"data": colours(), "checkpoint_every": 3, "log_every": 4}
        mishaps[7] = fail
        with pytest.raises(ZeroDivisionError):
            train(tiny_recipe(), tmp_path / "broken", **options)
        mishaps.clear()
        train(tiny_recipe(), tmp_path / "broken", resume=True, **options)
        found = [(line["step"], line["averaged_steps"]) for line in lines(tmp_path / "broken")]
        assert found == [(4, 4), (8, 2), (12, 4)]
        each = options | {"log_every": 1}
        train(tiny_recipe(), tmp_path / "unbroken", **each)
        totals = [line["total"] for line in lines(tmp_path / "unbroken")]
        for line in lines(tmp_path / "broken"):
            mean = sum(totals[line["step"] - line["averaged_steps"] : line["step"]])
            assert line["total"] == pytest.approx(mean / line["averaged_steps"], rel=1e-5)

    def test_tensorboard_shows_no_step_twice(self, tmp_path: Path, mishaps: Mishaps) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        options: dict[str, Any] = {"checkpoint_every": 3, "log_every": 2, "tensorboard": True}
        mishaps[9] = fail
        with pytest.raises(ZeroDivisionError):
            train(tiny_recipe(), tmp_path, data=colours(), **options)
        mishaps.clear()
        train(tiny_recipe(), tmp_path, data=colours(), resume=True, **options)
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        assert [event.step for event in events.Scalars("total")] == [2, 4, 6, 8, 10, 12]
