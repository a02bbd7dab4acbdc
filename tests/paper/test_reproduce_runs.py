"""Making what is missing: begun again at any point, nothing is lost and nothing recorded twice."""

from __future__ import annotations

import pickle
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from made_up_records import made_up_record
from tiny_runs import colours, save_as_npz, sending, tiny_recipe
from upright import evaluate
from upright.evaluation import Question, examine
from upright.measure import measured
from upright.paper import INVARIANCE
from upright.paper.missing import make_missing, undone
from upright.record_files import DamagedRecord, RecordFolder, read
from upright.train import Recipe, RunDirectory, load_network
from upright.workers import LocalEngine, Task, perform, run_folder

CPU = torch.device("cpu")


@pytest.fixture
def tasks(tmp_path, mishaps):  # noqa: ARG001 - the network has to be known
    save_as_npz(colours(), tmp_path / "colours.npz")
    return [
        Task(
            plan=tiny_recipe(data=f"npz:{tmp_path / 'colours.npz'}", objective=name, seed=seed),
            attacks=("grid-3x3x3", "s-pgd") if name == "std*" else ("grid-3x3x3",),
        )
        for name, seed in (("std*", 0), ("KL(rob, Wo-2)", 0), ("KL(rob, Wo-2)", 1))
    ]


def engine(tmp_path, name="runs", **options):
    return LocalEngine(runs=tmp_path / name, device=CPU, checkpoint_every=3, **options)


def told(results):
    """What records say, without when and how long."""
    return sorted(
        (record.method, record.seed, sorted(record.measured.items())) for record in results.read()
    )


@pytest.fixture(scope="module")
def once():
    """What the first test computed for all."""
    return {}


@pytest.fixture
def undisturbed(tmp_path, tasks, once):
    if not once:
        results = RecordFolder(tmp_path / "undisturbed")
        assert make_missing(INVARIANCE, tasks, engine(tmp_path, "other-runs"), results) == ()
        once["told"] = told(results)
        assert len(once["told"]) == 4
    return once["told"]


def test_a_task_gives_records_of_its_run(tmp_path, tasks):
    records = perform(tasks[0], tmp_path / "runs", device=CPU)
    folder = tmp_path / "runs" / tasks[0].plan.hash
    assert run_folder(tasks[0], tmp_path / "runs") == folder
    assert RunDirectory.open(folder).recipe == tasks[0].plan
    data = (colours().images, colours().labels)
    for record, attack in zip(records, ("grid-3x3x3", "s-pgd"), strict=True):
        direct = evaluate(load_network(folder), data, attacks=[attack])
        accuracy = direct.attacks[attack].accuracy
        assert record.measured == {"nat": direct.natural_accuracy, attack: accuracy}
        assert (record.recipe_hash, record.images) == (tasks[0].plan.hash, 48)
    assert [record.evaluation["precision"] for record in records] == ["float32", "float32"]


def test_grids_of_a_run_in_half_precision_are_evaluated_in_float16_and_gradients_in_float32(
    tmp_path, tasks
):
    half = replace(tasks[0], plan=replace(tasks[0].plan, precision="bfloat16"))
    grid, climb = perform(half, tmp_path, device=CPU)
    assert (grid.evaluation["precision"], climb.evaluation["precision"]) == ("float16", "float32")


def test_some_test_images_can_stand_for_all(tmp_path, tasks):
    (record,) = perform(replace(tasks[2], test_images=5), tmp_path, device=CPU)
    assert (record.images, record.evaluation["limit"]) == (5, 5)


def test_what_is_done_is_not_done_again(tmp_path, tasks, mishaps, undisturbed):
    results = RecordFolder(tmp_path / "results")
    make_missing(INVARIANCE, tasks, engine(tmp_path), results)
    assert told(results) == undisturbed
    files = {file: file.read_bytes() for file in results.folder.iterdir()}
    mishaps[1] = lambda _images: pytest.fail("trained again")
    said: list[str] = []
    assert make_missing(INVARIANCE, tasks, engine(tmp_path), results, say=said.append) == ()
    assert said == []
    assert {file: file.read_bytes() for file in results.folder.iterdir()} == files


@pytest.mark.parametrize("after", [1, 3])
def test_stopped_between_records_it_continues(tmp_path, tasks, undisturbed, after):
    results = RecordFolder(tmp_path / "results")
    seen = []

    def stop(text):
        seen.append(text)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_missing(INVARIANCE, tasks, engine(tmp_path), results, say=stop)
    assert len(results.read()) == after
    assert make_missing(INVARIANCE, tasks, engine(tmp_path), results) == ()
    assert told(results) == undisturbed


@pytest.mark.parametrize("together", [1, 3])
def test_stopped_in_the_middle_of_training_it_continues(
    tmp_path, tasks, mishaps, undisturbed, together
):
    results = RecordFolder(tmp_path / "results")
    mishaps[5] = sending(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        make_missing(INVARIANCE, tasks, engine(tmp_path, together=together), results)
    steps = [RunDirectory.open(folder).load().step for folder in (tmp_path / "runs").iterdir()]
    assert 0 < max(steps) < 12
    del mishaps[5]
    assert make_missing(INVARIANCE, tasks, engine(tmp_path, together=together), results) == ()
    assert told(results) == undisturbed


@pytest.mark.parametrize("together", [2, 3])
def test_side_by_side_gives_the_same_records(tmp_path, tasks, undisturbed, together):
    results = RecordFolder(tmp_path / "results")
    assert make_missing(INVARIANCE, tasks, engine(tmp_path, together=together), results) == ()
    assert told(results) == undisturbed


def test_a_run_that_fails_does_not_cost_the_others_theirs(tmp_path, tasks, undisturbed):
    results = RecordFolder(tmp_path / "results")
    bad = replace(tasks[0], plan=replace(tasks[0].plan, learning_rate=1e30))
    unknown = replace(tasks[0], plan=replace(tasks[0].plan, model="no-such-network"))
    failures = make_missing(
        INVARIANCE, [bad, unknown, *tasks], engine(tmp_path, together=4), results
    )
    assert [failure.task for failure in failures] == [bad, unknown]
    assert "no longer finite" in failures[0].reason
    assert "no network is called 'no-such-network'" in failures[1].reason
    assert told(results) == undisturbed


def test_a_record_is_kept_once_whoever_makes_it(tmp_path):
    results = RecordFolder(tmp_path)
    record = made_up_record(Recipe(), {"nat": 0.5})
    later = replace(record, finished="2001-01-01T00:00:00+00:00", commit="another")
    added: list[bool] = []
    threads = [
        threading.Thread(target=lambda each=each: added.append(results.add(each)))
        for each in [record, later] * 6
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert added.count(True) == 1
    assert len(results.read()) == 1
    assert results.add(replace(record, seed=1))
    assert [file.name for file in tmp_path.iterdir()] == ["cifar10.jsonl"]


def test_records_of_any_data_have_a_file_of_their_own_in_the_folder(tmp_path):
    results = RecordFolder(tmp_path / "results")
    record = made_up_record(Recipe(), {"nat": 0.5}, dataset="npz:../../elsewhere/x.npz")
    assert results.add(record)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert results.read() == (record,)
    assert RecordFolder(tmp_path / "nowhere").read() == ()


def test_a_damaged_line_is_named_and_passed_over(tmp_path):
    results = RecordFolder(tmp_path)
    results.add(made_up_record(Recipe(), {"nat": 0.5}))
    with (tmp_path / "cifar10.jsonl").open("a") as file:
        file.write("half a rec\n")
    with pytest.warns(DamagedRecord, match=r"cifar10\.jsonl:2: no record"):
        assert len(results.read()) == 1


def test_a_task_is_done_when_all_its_metrics_are_recorded():
    task = Task(plan=Recipe(), attacks=("grid-775", "s-pgd"))
    grid = made_up_record(Recipe(), {"nat": 0.5, "grid-775": 0.4})
    climb = made_up_record(Recipe(), {"nat": 0.5, "s-pgd": 0.45})
    assert undone(INVARIANCE, [task], []) == (task,)
    assert undone(INVARIANCE, [task], [grid]) == (replace(task, attacks=("s-pgd",)),)
    assert undone(INVARIANCE, [task], [grid, climb]) == ()
    few = replace(task, test_images=10)
    assert undone(INVARIANCE, [few], [grid, climb]) == (few,)
    ten = {"data_digest": {"test_images": "of ten"}, "evaluation": grid.evaluation | {"limit": 10}}
    assert undone(INVARIANCE, [task, few], [replace(each, **ten) for each in (grid, climb)]) == (
        task,
    )
    filled = [
        replace(each, evaluation=each.evaluation | {"fill": "border"}) for each in (grid, climb)
    ]
    assert undone(INVARIANCE, [task], filled) == (task,)
    elsewhere = [replace(each, dataset="svhn") for each in (grid, climb)]
    assert undone(INVARIANCE, [task], elsewhere) == (task,)
    other = replace(task, plan=Recipe(seed=1))
    assert undone(INVARIANCE, [other], [grid, climb]) == (other,)


def test_part_of_a_data_set_without_a_known_digest_does_not_stand_for_all_of_it():
    task = Task(plan=Recipe(data="npz:x.npz"), attacks=())
    few = made_up_record(task.plan, {"nat": 0.5}, evaluation={"limit": 5})
    assert undone(INVARIANCE, [task, replace(task, test_images=5)], [few]) == (task,)
    assert undone(INVARIANCE, [task], [made_up_record(task.plan, {"nat": 0.5})]) == ()


def test_what_is_recorded_is_what_the_evaluation_was_told(tmp_path, tasks, monkeypatch):
    told = []

    def noted(model, data, question, **options):
        told.append(question)
        return examine(model, data, question, **options)

    monkeypatch.setattr(measured, "examine", noted)
    records = perform(replace(tasks[0], test_images=5), tmp_path, device=CPU)
    for record, asked in zip(records, told, strict=True):
        assert record.evaluation["space"] == str(asked.space)
        for name in ("fill", "interpolation", "canvas", "limit", "precision", "seed"):
            assert record.evaluation[name] == getattr(asked, name)
        assert record.measured.keys() == {"nat", *asked.attacks}


def test_questions_have_the_keys_and_values_of_the_committed_records():
    (file,) = (Path(__file__).parents[2] / "results").glob("cifar10.jsonl")
    old = read(file).records[0].evaluation
    asked = Question(precision="bfloat16").for_record()
    assert asked == old
    assert list(asked) == list(old)


def test_tasks_and_records_travel_between_processes(tmp_path, tasks):
    record = made_up_record(tasks[0].plan, {"nat": 0.5}, dataset="colours")
    for thing in (tasks[0], record, engine(tmp_path)):
        assert pickle.loads(pickle.dumps(thing)) == thing


def test_a_record_that_cannot_be_kept_is_told_and_the_others_go_on(tmp_path, tasks):
    """As on a disk that is full for a while: what was measured is said, and measured once more."""
    (tmp_path / "results").mkdir()
    results, said, refused = RecordFolder(tmp_path / "results"), [], []

    class Fickle(RecordFolder):
        def add(self, record):
            if record.method == "std*" and not refused:
                refused.append(record)
                raise OSError(28, "No space left on device", "results")
            return super().add(record)

    failures = make_missing(
        INVARIANCE, tasks, engine(tmp_path), Fickle(results.folder), say=said.append
    )
    (failure,) = failures
    assert failure.task.plan == tasks[0].plan
    assert "No space left on device" in failure.reason
    (lost,) = (line for line in said if line.endswith("(not recorded)"))
    assert f"nat {100 * refused[0].measured['nat']:.2f} %" in lost
    assert len(results.read()) == len(said) - 1 >= 3
    assert make_missing(INVARIANCE, tasks, engine(tmp_path), results) == ()
    assert {name for record in results.read() for name in record.measured} >= {"nat", "s-pgd"}
