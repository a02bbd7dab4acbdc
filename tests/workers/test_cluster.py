"""A real cluster of two nodes on this machine: nodes and drivers die, and no record shows it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace

import pytest
import torch

from upright.cli import main
from upright.cli import reproduce as command
from upright.paper import INVARIANCE
from upright.paper.missing import make_missing
from upright.record_files import RecordFolder
from upright.train import Recipe
from upright.workers import LocalEngine, Task, run_folder
from upright.workers.folder_claim import newest_step, read_claim
from upright.workers.ray_engine import ray_engine

pytest.importorskip("ray", reason="it comes with the extra ray")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="clusters are for Linux")

STEPS, KEPT_EVERY = 60, 5
RECIPE = Recipe(
    objective="KL(rob, Wo-2)",
    data="glyphs",
    train_images=64,
    model="convnet",
    steps=STEPS,
    batch=8,
)
TASKS = [
    Task(plan=replace(RECIPE, seed=seed), attacks=("grid-3x3x3",), test_images=40)
    for seed in range(4)
]
DIVERGES = replace(TASKS[0], plan=replace(RECIPE, learning_rate=1e30))
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node with one CPU: of two runs, one waits.

    Its folder is its own: /tmp/ray may be another user's. And it is short, for the sockets in it.
    """
    own = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
    with own as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    engine = LocalEngine(runs=folder / "runs", device=torch.device("cpu"))
    assert make_missing(INVARIANCE, TASKS, engine, RecordFolder(folder / "results")) == ()
    records = timeless(RecordFolder(folder / "results"))
    assert len(records) == len(TASKS)
    return records


def timeless(results):
    """Records as they are, but for when and how long."""
    epoch = "1970-01-01T00:00:00+00:00"
    plain = {"finished": epoch, "train_seconds": 0.0, "evaluate_seconds": 0.0}
    return sorted(
        (replace(record, **plain) for record in results.read()), key=lambda record: record.seed
    )


def in_the_middle(runs, node=""):
    """Runs that somebody is training, on one node or on any, and the steps that they have kept."""
    found = {}
    for task in TASKS:
        folder = run_folder(task, runs)
        claim, step = read_claim(folder), newest_step(folder)
        if claim is not None and claim.node.endswith(node) and 0 < step < STEPS:
            found[task] = step
    return found


def stopped_in_the_middle(runs, node, kept):
    """Stop the worker of a run that a node is training, note what it has kept, and give its number.

    While it stands still nothing can be finished, however long it takes until the node is gone.
    """
    for task in in_the_middle(runs, node):
        worker = read_claim(run_folder(task, runs)).process
        os.kill(worker, signal.SIGSTOP)
        if still := in_the_middle(runs, node):
            kept.update(still)
            return worker
        os.kill(worker, signal.SIGCONT)
    return None


def wait_for(condition, *, seconds=180):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return found


def drive(address, runs, results):
    """A driver, as a process of its own."""
    with ray_engine(runs=runs, address=address, checkpoint_every=KEPT_EVERY) as engine:
        make_missing(INVARIANCE, TASKS, engine, RecordFolder(results))


def test_a_driver_that_was_killed_is_followed_by_one_that_finishes(
    tmp_path, cluster, undisturbed, monkeypatch, capsys
):
    results, runs = RecordFolder(tmp_path / "results"), tmp_path / "runs"
    driver = multiprocessing.get_context("spawn").Process(
        target=drive, args=(cluster.address, runs, results.folder)
    )
    driver.start()
    wait_for(lambda: results.read() and in_the_middle(runs))
    driver.kill()
    driver.join()
    begun = in_the_middle(runs)
    recorded = {record.recipe_hash for record in results.read()}
    before = {task: read_claim(run_folder(task, runs)) for task in TASKS}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "missing_tasks", lambda *_, **__: TASKS)
    options = ["--engine", "ray", "--address", cluster.address]
    assert main(["reproduce", *options, "--runs", "runs", "--results", "results"]) == 0

    assert timeless(results) == undisturbed
    after = {task: read_claim(run_folder(task, runs)) for task in TASKS}
    assert 0 < len(recorded) < len(TASKS)
    for task in TASKS:
        assert (after[task] == before[task]) == (task.plan.hash in recorded)
        assert after[task].step >= begun.get(task, 0)
    assert capsys.readouterr().err.count("grid-3x3x3") == len(TASKS) - len(recorded)


def test_a_node_that_dies_and_a_run_that_diverges_cost_no_record(
    tmp_path, cluster, undisturbed, capsys
):
    results, runs = RecordFolder(tmp_path / "results"), tmp_path / "runs"
    doomed = cluster.add_node(**NODE)
    killed = {}

    def kill():
        worker = wait_for(lambda: stopped_in_the_middle(runs, doomed.node_id[:8], killed))
        cluster.remove_node(doomed, allow_graceful=False)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)

    said = []
    with ray_engine(
        runs=runs, address=cluster.address, checkpoint_every=KEPT_EVERY, say=said.append
    ) as engine:
        assert (engine.device.type, engine.gpus) == ("cpu", 0.25)
        thread = threading.Thread(target=kill)
        thread.start()
        failures = make_missing(INVARIANCE, [DIVERGES, *TASKS], engine, results)
        thread.join()
    assert [failure.task for failure in failures] == [DIVERGES]
    assert "no longer finite" in failures[0].reason
    assert timeless(results) == undisturbed
    ((task, step),) = killed.items()
    claim = read_claim(run_folder(task, runs))
    assert claim.step >= step
    assert not claim.node.endswith(doomed.node_id[:8])
    assert any(line.startswith(f"lost: {task}: ") for line in said)
    assert capsys.readouterr().out == ""  # Ray would print its logs of the dead node


def test_an_address_at_which_no_cluster_answers_is_named(tmp_path):
    with (
        pytest.raises(ValueError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"),
        ray_engine(runs=tmp_path, address="127.0.0.1:1"),
    ):
        pass
