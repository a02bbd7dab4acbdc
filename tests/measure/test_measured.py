"""One function measures: whoever asks, by whatever way, finds and records the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cheap_compiler import compiled_cheaply
from tiny_runs import colours, register_tiny, save_as_npz, tiny_recipe
from upright import evaluate
from upright.attacks import RefiningSearch, parse_attack
from upright.evaluation import Oracle, Question
from upright.measure import (
    FinishedRun,
    Loaded,
    load,
    measure,
    measure_oracle,
    measure_run,
)
from upright.measure.doubts import doubts
from upright.measure.run import questions_of, state_name
from upright.models import Compiled, InHalfPrecision
from upright.records import Record
from upright.sources import load_locator, load_model
from upright.space import PAPER
from upright.train import Mean, Pair, RunDirectory, load_network, train
from upright.train.any_plan import plan_from_json
from upright.workers import Task
from upright.workers.task import folder_of, measure_task

CPU, GRID, DATA = torch.device("cpu"), "grid-3x3x3", "npz:colours.npz"
FILL = "reflection"


@pytest.fixture
def compiler():
    with compiled_cheaply() as found:
        yield found


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The runs of a classifier and of a LocNet, where a task of them looks for them."""
    register_tiny(monkeypatch)
    monkeypatch.chdir(tmp_path)
    save_as_npz(colours(), tmp_path / "colours.npz")
    recipes = {
        "cls": tiny_recipe(data=DATA, objective="std*"),
        "loc": tiny_recipe(data=DATA, objective=f"LocNet({FILL})"),
        "other": tiny_recipe(data=DATA, objective="std*", seed=1),
    }
    found = {name: folder_of(recipe, Path("runs")) for name, recipe in recipes.items()}
    for name, recipe in recipes.items():
        train(recipe, found[name])
    return found


def timeless(record: Record) -> Record:
    return replace(record, finished="1970-01-01T00:00:00+00:00", evaluate_seconds=0.0)


def test_a_model_by_name_a_run_and_a_task_have_one_record(folders):
    path = folders["cls"]
    question = Question.of([GRID], only_accuracy=True)
    by_name = measure(load(str(path), DATA, question, device=CPU))
    finished = FinishedRun.open(path)
    (by_run,) = measure_run(finished, load_network(path), Question.of([GRID]), device=CPU)
    task = Task(plan=finished.plan, attacks=(GRID,))
    (by_task,) = measure_task(task, Path("runs"), device=CPU)
    assert timeless(by_name.record) == timeless(by_run.record) == timeless(by_task)
    assert by_name.record is by_name.record  # all who keep it keep the same
    data = colours()
    found = evaluate(load_network(path), (data.images, data.labels), attacks=[GRID])
    assert by_task.measured == {
        "nat": found.natural_accuracy,
        GRID: found.attacks[GRID].accuracy,
    }
    assert by_task.recipe == tiny_recipe(data=DATA, objective="std*").as_json()


def test_an_oracle_by_name_and_as_a_task_have_one_record(folders):
    question = Question.of([GRID], space=PAPER)
    by_name = measure_oracle(folders["loc"], str(folders["cls"]), DATA, question, device=CPU)
    recipes = [RunDirectory.open(folders[name]).recipe for name in ("loc", "cls")]
    both = Pair(locnet=recipes[0], classifier=recipes[1], oracle=True)
    (by_task,) = measure_task(Task(plan=both, attacks=(GRID,)), Path("runs"), device=CPU)
    assert timeless(by_name.record) == timeless(by_task)
    assert by_task.is_oracle
    assert by_task.recipe_hash == both.hash
    model = Oracle(load_locator(folders["loc"]), load_network(folders["cls"])).eval()
    data = colours()
    found = evaluate(model, (data.images, data.labels), attacks=[GRID], fill=FILL)
    assert by_task.measured[GRID] == found.attacks[GRID].accuracy


@pytest.mark.parametrize("form", ["tta-mirror:{0}", "mean:{0},{1}", "tta-4:mean:{0},{1}"])
def test_a_mean_by_name_and_as_a_task_have_one_record(folders, form):
    name = form.format(folders["cls"], folders["other"])
    by_name = measure(load(name, DATA, Question.of([GRID], only_accuracy=True), device=CPU))
    plan = plan_from_json(by_name.record.recipe)
    assert isinstance(plan, Mean)
    task = Task(plan=plan, attacks=(GRID,))
    (by_task,) = measure_task(task, Path("runs"), device=CPU)
    assert timeless(replace(by_name.record, recipe=plan.as_json())) == timeless(by_task)
    assert by_task.of_several
    assert not by_task.is_guest
    assert (by_task.recipe_hash, by_task.steps) == (plan.hash, plan.total_steps)
    data = colours()
    found = evaluate(load_model(name), (data.images, data.labels), attacks=[GRID])
    assert by_task.measured[GRID] == found.attacks[GRID].accuracy


def test_a_run_that_stands_twice_in_a_mean_is_refused(folders):
    with pytest.raises(ValueError, match="stands twice"):
        load(f"mean:{folders['cls']},{folders['cls']}", DATA, Question(), device=CPU)


def test_doubts_are_about_every_member_of_a_mean(folders):
    question = Question.of([GRID], split="held-out")
    name = f"mean:{folders['cls']},{folders['other']}"
    loaded = load(name, DATA, question, device=CPU)
    trained = loaded.trained
    assert [each.recipe.seed for each in trained] == [0, 1]
    kept = replace(trained[0], recipe=replace(trained[0].recipe, held_out=True))
    for order in ((kept, trained[1]), (trained[1], kept)):
        said = [
            each
            for each in doubts(name, replace(loaded, trained=order))
            if "with --held-out" in each
        ]
        assert len(said) == 1
    both_kept = replace(loaded, trained=(kept, kept))
    assert not [each for each in doubts(name, both_kept) if "--held-out, it" in each]


def test_the_mean_of_a_guest_is_a_guest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_as_npz(colours(), tmp_path / "colours.npz")
    code = "import torch\ndef make():\n    return lambda images: images.mean((2, 3))\n"
    (tmp_path / "mine.py").write_text(code)
    name = "tta-mirror:mine.py:make"
    record = measure(load(name, DATA, Question.of([GRID]), device=CPU)).record
    assert record.is_guest
    assert record.method == name
    (tmp_path / "mine.py").write_text(code + "# other code\n")
    other = measure(load(name, DATA, Question.of([GRID]), device=CPU)).record
    assert other.recipe["weights_digest"] != record.recipe["weights_digest"]


def test_a_run_that_was_stopped_is_measured_but_not_recorded(folders):
    path = folders["cls"]
    text = json.loads((path / "run.json").read_text())
    text["recipe"]["steps"] += 1
    (path / "run.json").write_text(json.dumps(text))
    question = Question()
    with pytest.raises(ValueError, match="cannot be recorded: it is at step 12 of 13"):
        load(str(path), DATA, question, device=CPU)
    loaded = load(str(path), DATA, question, device=CPU, recorded=False)
    assert loaded.subject is None
    assert len(measure(loaded).evaluation) == 48


def test_a_model_is_evaluated_in_the_precision_of_the_settings_and_recorded_as_it_came(folders):
    path = folders["cls"]
    question = Question.of([GRID], precision="bfloat16")
    loaded = Loaded(
        model=load_network(path),
        subject=FinishedRun.open(path),
        data=colours(),
        data_name=DATA,
        question=question,
        device=CPU,
    )
    found = measure(loaded)
    assert found.record.evaluation["precision"] == "bfloat16"
    answers = found.loaded.model(colours().as_float())
    exact = loaded.model(colours().as_float())
    assert not torch.equal(answers.float(), exact)
    torch.testing.assert_close(answers.float(), exact, rtol=0.05, atol=0.05)


def test_a_model_is_compiled_where_that_is_asked_and_the_record_says_so(folders, compiler):
    path = folders["cls"]
    plain, compiled = (
        measure(load(str(path), DATA, Question.of([GRID], compile=each), device=CPU))
        for each in (False, True)
    )
    assert compiler.sizes
    assert compiled.record.measured == plain.record.measured
    assert compiled.record.recipe == plain.record.recipe
    assert compiled.record.evaluation == plain.record.evaluation | {"compile": True}
    assert compiled.record.key != plain.record.key


def test_a_state_is_of_a_compiled_model_or_of_the_model_as_it_is(folders, compiler):
    loaded = load(str(folders["cls"]), DATA, Question.of([GRID]), device=CPU)
    measure(loaded, state=Path("state"))
    asked = replace(loaded, question=replace(loaded.question, compile=True))
    with pytest.raises(ValueError, match="belongs to another evaluation"):
        measure(asked, state=Path("state"))
    assert compiler.sizes == []


def test_each_network_of_two_is_compiled(folders, compiler):
    name = f"stn-plus:{folders['loc']},{folders['cls']}"
    found = measure(load(name, DATA, Question.of([GRID], compile=True), device=CPU, recorded=False))
    networks = [each for each in found.loaded.model.modules() if isinstance(each, Compiled)]
    assert len(networks) == 2
    assert compiler.sizes


def test_kernels_of_a_network_s_own_are_left_alone(folders, compiler, monkeypatch):
    question = Question.of([GRID], precision="bfloat16", compile=True)
    loaded = load(str(folders["cls"]), DATA, question, device=CPU)
    assert isinstance(measure(loaded).loaded.model, Compiled)
    assert compiler.sizes
    monkeypatch.setattr(InHalfPrecision, "has_kernels", True)  # as on a GPU
    assert not isinstance(measure(loaded).loaded.model, Compiled)


@pytest.mark.parametrize("name", ["net.pt", "net.pt2", "tta-2:net.pt"])
def test_what_a_file_computes_is_not_compiled(folders, name):
    network, images = load_network(folders["cls"]).eval(), colours().as_float()[:2]
    torch.jit.save(torch.jit.trace(network, images), "net.pt")
    torch.export.save(torch.export.export(network, (images,)), "net.pt2")
    with pytest.raises(ValueError, match="as its file says, and is not compiled; leave out"):
        load(name, DATA, Question.of([GRID], compile=True), device=CPU)


def test_attacks_that_climb_have_an_evaluation_of_their_own_in_float32():
    recipe = tiny_recipe(objective="std*", precision="bfloat16", view=6)
    names = ["s-pgd", "grid-775", "wo-10", "refine-100"]
    listed, climbing = questions_of(recipe, Question.of(names, precision="float16", limit=20))
    asked = {"only_accuracy": True, "limit": 20, "view": 6}
    assert listed == Question.of(["grid-775", "wo-10", "refine-100"], precision="float16", **asked)
    assert climbing == Question.of(["s-pgd"], precision="float32", **asked)
    (only,) = questions_of(recipe, Question.of([], precision="float16"))
    assert (only.attacks, only.precision) == ({}, "float16")


def test_a_run_by_name_is_asked_in_its_own_view_whoever_asks(folders):
    recipe = tiny_recipe(data=DATA, objective="std*", view=6)
    path = folder_of(recipe, Path("runs"))
    train(recipe, path)
    for asked, view in ((None, 6), (5, 5)):
        loaded = load(str(path), DATA, Question.of([GRID], view=asked), device=CPU)
        assert loaded.question.view == view
    assert load(str(folders["cls"]), DATA, Question.of([GRID]), device=CPU).question.view is None


class Climber(RefiningSearch):
    """Compares in rounds, as others do that need no gradient, and says that it needs one."""

    @property
    def climbs(self) -> bool:
        return True


def test_an_attack_says_itself_whether_it_climbs():
    for name, climbs in {"grid-775": False, "rnd": False, "refine-9": False, "s-pgd": True}.items():
        assert parse_attack(name).climbs is climbs
    (only,) = questions_of(tiny_recipe(), Question.of([Climber(100)], precision="float16"))
    assert only.precision == "float32"


def test_a_state_s_name_stands_for_all_that_is_asked():
    questions = questions_of(tiny_recipe(), Question.of(["grid-775", "s-pgd"], precision="float16"))
    for each in questions:
        asked = json.dumps([each.for_record(), list(each.attacks)], sort_keys=True)
        digest = hashlib.sha256(asked.encode()).hexdigest()[:12]
        assert state_name(each) == f"evaluation-{digest}.safetensors"
    assert len({*map(state_name, questions)}) == 2
    # States that lie in run folders are found by it.
    (usual,) = questions_of(tiny_recipe(), Question.of(["grid-775"]))
    assert state_name(usual) == "evaluation-c2fcd7a3e8b9.safetensors"
