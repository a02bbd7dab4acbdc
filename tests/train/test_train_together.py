"""Several runs side by side: each as if alone, and none at the others' cost."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tiny_runs import Mishaps, colours, sending, tiny_recipe
from upright.cli import main
from upright.data import LabelledImages
from upright.train import RunDirectory, loop, train, train_together

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


def test_each_run_gives_what_it_gives_alone(tmp_path: Path) -> None:
    recipes = [
        tiny_recipe(seed=seed, objective=o) for seed, o in ((0, "std"), (1, "KL(rob, Wo-2)"))
    ]
    folders = {tmp_path / f"{recipe.seed}": recipe for recipe in recipes}
    together = train_together(folders, data=colours())
    for recipe, run in zip(recipes, together, strict=True):
        alone = train(recipe, tmp_path / f"alone-{recipe.seed}", data=colours())
        for name, tensor in alone.model.state_dict().items():
            assert torch.equal(run.model.state_dict()[name], tensor), name


def test_run_that_fails_does_not_cost_the_others_their_work(tmp_path: Path) -> None:
    wild, tame = tiny_recipe(learning_rate=1e30), tiny_recipe(seed=1)
    with pytest.raises(ValueError, match="no longer finite"):
        train_together({tmp_path / "wild": wild, tmp_path / "tame": tame}, data=colours())
    kept = RunDirectory.open(tmp_path / "tame").load()
    assert kept is not None
    assert kept.step == tame.steps


def test_run_that_fails_does_not_hide_that_all_were_told_to_stop(
    tmp_path: Path, mishaps: Mishaps
) -> None:
    mishaps[5] = lambda images: mishaps.pop(5) and sending(signal.SIGINT)(images)
    wild, tame = tiny_recipe(learning_rate=1e30), tiny_recipe(seed=1)
    folders = {tmp_path / "wild": wild, tmp_path / "tame": tame}
    with (
        pytest.warns(RuntimeWarning, match="no longer finite"),
        pytest.raises(KeyboardInterrupt),
    ):
        train_together(folders, data=colours(), log_every=2)
    kept = RunDirectory.open(tmp_path / "tame").load()
    assert kept is not None
    assert 0 < kept.step < tame.steps


def test_what_is_set_for_the_whole_process_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Setting(loop.Learner):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            torch.backends.cudnn.benchmark = True

    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(loop, "Learner", Setting)
    train(tiny_recipe(), tmp_path, data=colours())
    assert not torch.backends.cudnn.benchmark


def beside(path: Path) -> int | None:
    checkpoint = RunDirectory.open(path).load()
    assert checkpoint is not None
    return checkpoint.beside


def test_a_run_knows_beside_how_many_it_ever_trained(tmp_path: Path) -> None:
    """What is trained already, and is only looked at, takes no time of the others."""
    runs = {tmp_path / f"{seed}": tiny_recipe(seed=seed) for seed in range(3)}
    train(runs[tmp_path / "0"], tmp_path / "0", data=colours())
    train_together(runs, data=colours(), resume=True)
    assert [beside(path) for path in runs] == [1, 2, 2]


def test_runs_of_other_processes_on_the_same_device_count_too(tmp_path: Path) -> None:
    train(tiny_recipe(), tmp_path, data=colours(), sharing=4)
    assert beside(tmp_path) == 4


def test_a_run_that_is_continued_alone_did_not_train_alone(
    tmp_path: Path, mishaps: Mishaps
) -> None:
    runs = {tmp_path / f"{seed}": tiny_recipe(seed=seed) for seed in range(2)}
    mishaps[9] = sending(signal.SIGINT)
    train_together(runs, data=colours())
    mishaps.clear()
    for path, recipe in runs.items():
        assert train(recipe, path, data=colours(), resume=True).finished
        assert beside(path) == 2


def test_run_is_not_continued_with_other_data(tmp_path: Path) -> None:
    train(tiny_recipe(), tmp_path / "run", data=colours())
    data = colours()
    other = LabelledImages(data.images.flip(0).contiguous(), data.labels, data.classes)
    with pytest.raises(ValueError, match="other images or labels"):
        train(tiny_recipe(), tmp_path / "run", data=other, resume=True)


@pytest.mark.parametrize("words", [["std", "std"], ["std", "--seeds", "0,0"], []])
def test_runs_that_are_none_or_the_same_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["train", *words, "--data", "glyphs", "--out", str(tmp_path / "runs")]) == 2
    assert "once" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
