"""What the driver does with tasks that are lost, on a stand-in for Ray that calls them in place."""

from __future__ import annotations

import io
import sys
import types
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from tiny_runs import colours, register_tiny, save_as_npz, tiny_recipe
from upright.cli import main
from upright.cli import reproduce as command
from upright.paper import INVARIANCE
from upright.paper.missing import make_missing
from upright.record_files import RecordFolder
from upright.train import Pair
from upright.workers import LocalEngine, Task, run_folder
from upright.workers.progress import Doing, progress_table
from upright.workers.ray_engine import RayEngine
from upright.workers.ray_worker import NotSharedError
from upright.workers.task import folder_of

CPU = torch.device("cpu")


class LostError(Exception):
    """A worker or node that died."""


class RaisedError(Exception):
    """What a worker raised."""

    def __init__(self, cause):
        super().__init__("a long traceback")
        self.cause = cause


class StandIn(types.ModuleType):
    """Calls a task when it is asked for; before that, what ``faults`` has for it."""

    def __init__(self):
        super().__init__("ray")
        self.exceptions = types.SimpleNamespace(RayError=LostError, RayTaskError=RaisedError)
        self.faults, self.asked, self.calls, self.cancelled = [], {}, [], []

    def remote(self, **options):
        self.asked = options

        def wrap(function):
            calls = {"remote": lambda *args: (len(self.calls), function, args)}
            return types.SimpleNamespace(**calls)

        return wrap

    def wait(self, refs, **_):
        return refs[:1], refs[1:]

    def get(self, ref):
        _, function, (attempt,) = ref
        self.calls.append(attempt)
        if self.faults:
            self.faults.pop(0)(attempt)
        try:
            return function(attempt)
        except Exception as error:
            raise RaisedError(error) from error

    def cancel(self, ref):
        self.cancelled.append(ref)

    def get_runtime_context(self):
        return types.SimpleNamespace(get_node_id=lambda: "0123456789")


@pytest.fixture
def ray(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    register_tiny(monkeypatch)
    save_as_npz(colours(), tmp_path / "colours.npz")
    recipe = tiny_recipe(data=f"npz:{tmp_path / 'colours.npz'}", steps=3)
    return [Task(plan=replace(recipe, seed=seed), attacks=("grid-3x3x3",)) for seed in range(3)]


def engine(tmp_path, **options):
    return RayEngine(runs=tmp_path / "runs", device=CPU, **options)


def dies(_attempt):
    raise LostError("the worker died\nand more")


def gets_further_and_dies(attempt):
    folder = run_folder(attempt.task, attempt.runs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation-x.safetensors").write_bytes(attempt.name.encode())
    raise LostError("the node died")


def raises(kind, text="no luck"):
    def fault(_attempt):
        raise RaisedError(kind(text))

    return fault


def test_a_task_is_given_up_when_so_many_attempts_were_in_vain(tmp_path, tasks, ray):
    ray.faults = [dies] * 3
    said, results = [], RecordFolder(tmp_path / "results")
    failures = engine(tmp_path, say=said.append, tries=3).run(tasks[:1], results.add)
    assert failures[0].task == tasks[0]
    assert failures[0].reason == "given up after 3 attempts: the worker died"
    assert len({attempt.name for attempt in ray.calls}) == 3
    assert len(said) == 2
    assert said[0].endswith("seed 0: the worker died; it continues from step 0")
    assert results.read() == ()


def test_a_task_may_be_lost_any_number_of_times_while_it_gets_further(tmp_path, tasks, ray):
    ray.faults = [gets_further_and_dies, dies] * 10
    results = RecordFolder(tmp_path / "results")
    assert (
        make_missing(INVARIANCE, tasks[:1], engine(tmp_path, tries=2, progress=True), results) == ()
    )
    assert len(ray.calls) == 21
    assert len(results.read()) == 1


@pytest.mark.parametrize(("kind", "attempts"), [(ValueError, 1), (OSError, 2), (RuntimeError, 2)])
def test_what_the_recipe_is_to_blame_for_is_not_tried_again(tmp_path, tasks, ray, kind, attempts):
    ray.faults = [raises(kind)]
    results = RecordFolder(tmp_path / "results")
    failures = make_missing(INVARIANCE, tasks, engine(tmp_path), results)
    assert [failure.task for failure in failures] == ([tasks[0]] if attempts == 1 else [])
    assert len(ray.calls) == 2 + attempts
    assert len(results.read()) == 3 - len(failures)


@pytest.fixture
def pairs(tasks):
    """Two pairs of one classifier with as many fills, and one of another seed."""
    fills = [("black", 0), ("reflection", 0), ("black", 1)]
    return [
        Task(
            plan=Pair(
                oracle=False,
                locnet=replace(tasks[seed].plan, objective=f"LocNet({fill})"),
                classifier=replace(tasks[seed].plan, objective="std*"),
            ),
            attacks=("grid-3x3x3",),
        )
        for fill, seed in fills
    ]


def test_tasks_that_need_the_same_run_follow_each_other(tmp_path, pairs, ray, monkeypatch):
    at_once = []

    def noted(refs, **_):
        at_once.append([run for ref in refs for run in ref[2][0].task.plan.runs])
        return refs[:1], refs[1:]

    monkeypatch.setattr(ray, "wait", noted)
    ray.faults = [gets_further_and_dies]
    found, expected = RecordFolder(tmp_path / "results"), RecordFolder(tmp_path / "expected")
    assert make_missing(INVARIANCE, pairs, engine(tmp_path, progress=True), found) == ()
    assert max(map(len, at_once)) == 4
    assert all(len(runs) == len(set(runs)) for runs in at_once)
    assert len(ray.calls) == 4
    assert (
        make_missing(INVARIANCE, pairs, LocalEngine(runs=tmp_path / "other", device=CPU), expected)
        == ()
    )
    both = [
        sorted(
            (record.method, record.seed, record.measured["grid-3x3x3"]) for record in each.read()
        )
        for each in (found, expected)
    ]
    assert both[0] == both[1]
    assert len(both[0]) == 3


def reaches(step, run):
    """A fault: one of the two runs of a pair has a checkpoint, and its worker dies."""

    def fault(attempt):
        folder = folder_of(attempt.task.plan.runs[run], attempt.runs) / "checkpoints"
        folder.mkdir(parents=True)
        (folder / f"{step:08d}.json").touch()
        dies(attempt)

    return fault


def test_a_pair_gets_further_with_a_checkpoint_of_either_run(tmp_path, pairs, ray):
    ray.faults = [reaches(2, run=0), dies, reaches(1, run=1), dies, dies]
    said = []
    (failure,) = engine(tmp_path, say=said.append, tries=2).run(pairs[:1], pytest.fail)
    assert failure.reason == "given up after 5 attempts: the worker died"
    assert [text.rpartition("; ")[2] for text in said] == [
        f"it continues from step {step}" for step in (2, 2, 3, 3)
    ]


def test_storage_that_is_not_shared_stops_all(tmp_path, tasks, ray):
    ray.faults = [raises(NotSharedError, "the node x does not see")]
    with pytest.raises(NotSharedError, match="the node x does not see"):
        engine(tmp_path).run(tasks, RecordFolder(tmp_path / "results").add)
    assert len(ray.calls) == 1
    assert len(ray.cancelled) == 2
    assert not list((tmp_path / "runs").iterdir())


def test_an_interrupt_stops_the_others_and_is_raised_again(tmp_path, tasks, ray):
    def stop(_record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine(tmp_path).run(tasks, stop)
    assert len(ray.cancelled) == 2


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cuda", 0.5)])
def test_a_run_asks_for_a_part_of_a_gpu_and_for_none_on_a_cpu(tmp_path, ray, device, gpus):
    some = RayEngine(runs=tmp_path, device=torch.device(device), gpus=0.5)
    assert some.run([], lambda _: None) == ()
    assert (ray.asked["num_gpus"], ray.asked["num_cpus"], ray.asked["max_retries"]) == (gpus, 1, 0)


def test_records_of_workers_that_share_a_gpu_can_tell(tmp_path):
    for gpus, sharing in ((1, 1), (0.6, 1), (0.5, 2), (0.3, 3), (0.25, 4), (0.1, 10)):
        on_gpu = RayEngine(runs=tmp_path, device=torch.device("cuda"), gpus=gpus)
        assert on_gpu.sharing == sharing
        assert engine(tmp_path, gpus=gpus).sharing == 1


def test_parts_that_no_worker_can_have_are_refused(tmp_path):
    for gpus in (0, 1.5):
        with pytest.raises(ValueError, match=f"a run cannot have {gpus} GPUs"):
            engine(tmp_path, gpus=gpus)
    with pytest.raises(ValueError, match="workers have no device meta; choose cuda or cpu"):
        RayEngine(runs=tmp_path, device=torch.device("meta"))


def test_one_table_tells_how_far_all_runs_are():
    doing = [Doing("a", 3, 12, "n/1", 1), Doing("b", 12, 12, "n/2", 4)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(progress_table(doing, {"done": 5, "failed": 0}))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["a", "3", "of", "12", "n/1", "1"] in lines
    assert ["b", "evaluates", "n/2", "4"] in lines
    assert ["5", "done,", "0", "failed"] in lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "ray"], "Ray is missing: pip install 'upright[ray]'"),
        (["--address", "x:1"], "--address is of a Ray cluster; give --engine ray, too"),
        (["--gpus-per-run", "1"], "--gpus-per-run is of a Ray cluster; give --engine ray, too"),
        (["--engine", "ray", "--together", "2"], "--together is of this machine; on a Ray cluster"),
    ],
)
def test_the_command_says_what_is_missing(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(command, "missing_tasks", lambda *_, **__: ())
    assert main(["reproduce", *options]) == 2
    assert message in capsys.readouterr().err
