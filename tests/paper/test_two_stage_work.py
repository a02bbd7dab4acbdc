"""Two networks together: what is left to do of them, whose folders are held, who trains when."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from made_up_records import made_up_record
from tiny_runs import colours, register_tiny, save_as_npz, tiny_recipe
from upright.cli.todo import todo_table
from upright.paper import INVARIANCE
from upright.paper.cost import Times
from upright.paper.missing import make_missing
from upright.paper.todo import todo_of
from upright.record_files import RecordFolder
from upright.train import Pair, train
from upright.workers import LocalEngine, Task, engine
from upright.workers.folder_claim import claimed
from upright.workers.ray_worker import Attempt, token_in, work_on
from upright.workers.task import folder_of, folders_of

CPU = torch.device("cpu")


@pytest.fixture
def pair(tmp_path, monkeypatch):
    register_tiny(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in ("colours", "others"):
        save_as_npz(colours(), tmp_path / f"{name}.npz")
    return Pair(
        locnet=tiny_recipe(data="npz:colours.npz", objective="LocNet(black)"),
        classifier=tiny_recipe(data="npz:colours.npz", objective="std*"),
        oracle=False,
    )


def total_of(tasks, records, runs):
    """The last line of what is missing."""
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(todo_table(todo_of(tasks, Times.of(INVARIANCE, records, CPU), runs=runs)))
    return console.export_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("trained", "total"),
    [
        # A training would take 1,200 s, an evaluation of two networks 40 s.
        ([], "2 runs missing: 41 min on made-up GPU"),
        (["locnet"], "1 run missing, for 2 evaluations: 21 min on made-up GPU"),
        (["locnet", "classifier"], "No run is missing, but 2 evaluations: 1 min on made-up GPU"),
    ],
)
def test_a_trained_run_is_not_missing_and_its_training_takes_no_time(
    tmp_path, pair, trained, total
):
    pair = pair.changed(data="cifar10")  # whose test images are counted, but not read
    for recipe in (getattr(pair, name) for name in trained):
        train(recipe, folder_of(recipe, tmp_path), data=colours())
    other = replace(pair.classifier, seed=9)
    record = made_up_record(other, {"nat": 0.9, "grid-775": 0.5}, train_seconds=1200.0)
    tasks = [Task(plan=each) for each in (pair, replace(pair, oracle=True))]
    assert total_of(tasks, [record], tmp_path).startswith(total)


def test_one_evaluation_that_needs_two_runs_is_told_from_them(tmp_path, pair):
    total = total_of([Task(plan=pair)], [], tmp_path)
    assert total.startswith("2 runs missing, for 1 evaluation; of 1 evaluation no record")


def test_each_line_counts_what_it_trains_and_all_of_them_add_up(tmp_path, pair):
    seeds = [pair.changed(seed=seed) for seed in range(3)]
    tasks = [Task(plan=each) for each in (*seeds, *(replace(each, oracle=True) for each in seeds))]
    train(seeds[1].locnet, folder_of(seeds[1].locnet, tmp_path))
    todo = todo_of(tasks, Times.of(INVARIANCE, [], CPU), runs=tmp_path)
    # Two for each seed, but for one that is trained; the oracle has the same.
    assert [(len(line.tasks), line.untrained) for line in todo.lines] == [(3, 5), (3, 0)]
    assert todo.untrained == 5


@pytest.mark.parametrize("held", ["locnet", "classifier", None])
def test_a_worker_waits_for_whoever_is_at_work_in_any_of_its_folders(tmp_path, pair, held):
    folder = folder_of(getattr(pair, held) if held else pair, tmp_path)
    task = Task(plan=pair, attacks=("grid-3x3x3",))
    with token_in(tmp_path) as token, claimed(folder, "other", node="a", patience=0):
        attempt = Attempt(
            task=task,
            name="this",
            runs=tmp_path,
            token=token,
            device="cpu",
            checkpoint_every=3,
            patience=0.0,
        )
        with pytest.raises(RuntimeError, match=rf"on a is at work in .*{folder.name}"):
            work_on(attempt, node="b")
    assert not list(tmp_path.glob("*/checkpoints"))


def test_folders_are_taken_in_the_order_of_their_names(tmp_path, pair):
    for seed in range(20):
        classifier = replace(pair.classifier, seed=seed)
        task = Task(plan=replace(pair, classifier=classifier))
        recipes = (task.plan, pair.locnet, classifier)
        all_of_it = [tmp_path / recipe.hash for recipe in recipes]
        assert list(folders_of(task, tmp_path)) == sorted(all_of_it)


@pytest.mark.parametrize("changes", [{"train_images": 24}, {"data": "npz:others.npz"}])
def test_runs_on_other_data_train_one_after_the_other_and_are_then_measured(
    tmp_path, pair, monkeypatch, changes
):
    pair = replace(pair, locnet=replace(pair.locnet, **changes))
    events = []
    train_together, measure = engine.train_together, engine.measure_task

    def noted_training(runs, **options):
        events.append(list(runs.values()))
        return train_together(runs, **options)

    def noted_measuring(task, *args, **options):
        events.append(task)
        return measure(task, *args, **options)

    monkeypatch.setattr(engine, "train_together", noted_training)
    monkeypatch.setattr(engine, "measure_task", noted_measuring)
    task = Task(plan=pair, attacks=("grid-3x3x3",))
    results = RecordFolder(tmp_path / "results")
    local = LocalEngine(runs=tmp_path / "runs", device=CPU, together=2)
    assert make_missing(INVARIANCE, [task], local, results) == ()
    assert events == [[pair.locnet], [pair.classifier], task]
    assert len(results.read()) == 1
