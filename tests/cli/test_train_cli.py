"""``upright train`` and ``upright evaluate RUN``, end to end: files, messages and exit codes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from tiny_runs import (
    Call,
    Mishaps,
    colours,
    newest,
    save_as_npz,
    sending,
)
from upright import evaluate
from upright.objective import grammar
from upright.train import Recipe, load_network, published

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


OBJECTIVE = "KL(rob, Wo-2; λ=2)"
OPTIONS = ("--data", "npz:colours.npz", "--model", "tiny", "--steps", 12, "--batch", 11)
OFTEN = ("--checkpoint-every", 3, "--log-every", 2)


def test_a_run_from_glyphs_to_its_evaluation(upright: Call) -> None:
    code, out, err = upright(
        *("train", "std*", "--data", "glyphs", "--train-images", 64, "--model", "resnet8x0.25"),
        *("--steps", 6, "--batch", 16, "--seed", 3, "--out", "run"),
    )
    assert (code, err) == (0, "")
    assert out.startswith("std*: 6 steps in run, ")
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert (recipe["data"], recipe["train_images"], recipe["seed"]) == ("glyphs", 64, 3)
    code, out, err = upright(
        "evaluate", "run", "--data", "glyphs", "--limit", 20, "--attack", "rnd"
    )
    assert (code, err) == (0, "")
    assert "run on glyphs: 20 images" in out


def test_evaluate_understands_a_run_and_takes_its_newest_weights(upright: Call) -> None:
    upright("train", OBJECTIVE, *OPTIONS, "--out", "run")
    data = colours(count=36)
    save_as_npz(data, Path("others.npz"))
    code, _, err = upright(
        *("evaluate", "run", "--data", "npz:others.npz", "--attack", "grid-3x3x3"),
        *("--json", "result.json"),
    )
    result = json.loads(Path("result.json").read_text())
    direct = evaluate(load_network(Path("run")), (data.images, data.labels), attacks=["grid-3x3x3"])
    assert (code, err) == (0, "")
    assert result["natural_accuracy"] == direct.natural_accuracy
    found = result["attacks"]["grid-3x3x3"]["accuracy"]
    assert found == direct.attacks["grid-3x3x3"].accuracy


def test_sigterm_exits_with_130_and_resume_ends_where_the_unbroken_run_ends(
    upright: Call, mishaps: Mishaps
) -> None:
    assert upright("train", OBJECTIVE, *OPTIONS, "--out", "unbroken")[0] == 0
    mishaps[5] = sending(signal.SIGTERM)
    code, _, err = upright("train", OBJECTIVE, *OPTIONS, *OFTEN, "--out", "broken")
    assert code == 130
    assert "--resume continues" in err
    assert err.count("\n") == 1
    mishaps.clear()
    code, out, err = upright("train", OBJECTIVE, *OPTIONS, *OFTEN, "--out", "broken", "--resume")
    assert (code, err) == (0, "")
    assert "KL(rob, Wo-2; λ=2): 12 steps in broken" in out
    assert newest(Path("broken")) == newest(Path("unbroken"))


def test_the_weight_is_an_option_too(upright: Call) -> None:
    upright("train", OBJECTIVE, *OPTIONS, "--out", "one")
    upright("train", "KL(rob, Wo-2)", "--lambda", 2, *OPTIONS, "--out", "other")
    assert newest(Path("one")) == newest(Path("other"))


@pytest.mark.parametrize("objective", ["std", "std*", "AT(rob, Wo-2)", "LocNet(black)"])
def test_a_weight_of_no_penalty_is_refused(upright: Call, objective: str) -> None:
    code, _, err = upright("train", objective, "--lambda", 3, *OPTIONS, "--out", "run")
    assert code == 2
    assert f"--lambda is the weight of a penalty, and {objective} has none; leave it out" in err
    assert not Path("run").exists()


def test_of_several_objectives_a_weight_is_for_those_with_a_penalty(upright: Call) -> None:
    both = ("std*", "KL(rob, Wo-2)")
    assert upright("train", *both, "--lambda", 2, *OPTIONS, "--out", "runs")[0] == 0
    assert upright("train", OBJECTIVE, *OPTIONS, "--out", "alone")[0] == 0
    (weighted,) = (path for path in Path("runs").iterdir() if "kl" in path.name)
    assert newest(weighted) == newest(Path("alone"))


def test_options_reach_the_recipe(upright: Call) -> None:
    upright(
        *("train", "std", *OPTIONS, "--out", "run", "--no-flips", "--precision", "bfloat16"),
        *("--learning-rate", 0.5, "--weight-decay", 0, "--train-images", 40),
        *("--max-translation", "10%", "--max-rotation", 15),
    )
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert (recipe["flips"], recipe["precision"], recipe["max_shift"]) == (False, "bfloat16", 4)
    assert (recipe["learning_rate"], recipe["weight_decay"]) == (0.5, 0)
    assert recipe["train_images"] == 40
    assert recipe["space"] == "shift(10%) rotate(15)"


@pytest.mark.parametrize("objective", ["std*", "KL(rob, Wo-2)", "LocNet(black)"])
def test_how_images_are_resampled_reaches_what_is_trained(upright: Call, objective: str) -> None:
    options = ("--data", "glyphs", "--model", "convnet0.25", "--steps", 2, "--batch", 8)
    found = {}
    for way in ("bilinear", "bilinear-twice"):
        how = ("--interpolation", way, "--train-images", 16)
        assert upright("train", objective, *options, *how, "--out", way)[0] == 0
        weights = load_network(Path(way)).parameters()
        found[way] = torch.cat([weight.detach().flatten() for weight in weights])
    assert not torch.equal(*found.values())


def test_a_teacher_says_all_of_a_label_or_the_share_that_is_told(upright: Call) -> None:
    assert upright("train", "std*", *OPTIONS, "--out", "teacher")[0] == 0
    for name, options, share in (("all", (), 1.0), ("half", ("--teacher-share", 0.5), 0.5)):
        taught = ("--teacher", "teacher", *options, "--out", name)
        code, _, err = upright("train", OBJECTIVE, *OPTIONS, *taught)
        assert (code, err) == (0, "")
        recipe = json.loads(Path(name, "run.json").read_text())["recipe"]
        assert (recipe["teacher"], recipe["teacher_share"]) == ("teacher", share)
    none = ("--teacher", "teacher", "--teacher-share", 0, "--out", "none")
    code, _, err = upright("train", OBJECTIVE, *OPTIONS, *none)
    assert (code, err.count("\n")) == (2, 1)
    assert "--teacher-share 0 leaves a teacher nothing to say; leave it out" in err
    assert not Path("none").exists()


def test_adam_is_an_option(upright: Call) -> None:
    code, _, err = upright(
        *("train", "std", *OPTIONS, "--optimizer", "adam", "--learning-rate", 0.002, "--out", "run")
    )
    assert (code, err) == (0, "")
    assert json.loads(Path("run/run.json").read_text())["recipe"]["optimizer"] == "adam"


PUBLISHED = ("--data", "npz:many.npz", "--published", "--out", "run")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that would be trained, on 261 images."""
    found: list[Recipe] = []
    monkeypatch.setattr(
        "upright.cli.train.train_together",
        lambda recipes, **_: found.extend(recipes.values()) or [],
    )
    save_as_npz(colours(2 * 128 + 5), Path("many.npz"))
    return found


def test_published_counts_epochs_of_the_data_there_are(upright: Call, asked: list[Recipe]) -> None:
    assert upright("train", "std*", *PUBLISHED, "--model", "etn10")[0] == 0
    assert asked == [published(asked[0], 261)]
    assert (str(asked[0].objective), asked[0].optimizer) == ("std*", "adam")
    assert (asked[0].steps, asked[0].decay_every) == (600, 2)


@pytest.mark.parametrize(
    ("given", "theirs"),
    [
        ("--batch 8", "--batch 128"),
        ("--batch 64", "--batch 128"),  # the default, but given
        ("--optimizer sgd --learning-rate 0.1", "--learning-rate 0.002 --optimizer adam"),
        ("--weight-decay 0.0002", "--weight-decay 0.0"),
        ("--flips", "--no-flips"),
        ("--cosine", "--no-cosine"),
    ],
)
def test_published_overrules_nothing_that_is_given(
    upright: Call, asked: list[Recipe], given: str, theirs: str
) -> None:
    code, _, err = upright("train", "std*", *PUBLISHED, "--model", "etn10", *given.split())
    assert (code, asked, err.count("\n")) == (2, [], 1)
    told, advice = err.split("; leave out ")
    assert told == f"upright: error: --published trains etn10 with {theirs}"
    assert sorted(advice.split(", or ")[0].split()) == sorted(given.split())
    assert advice.endswith(", or leave out --published\n")


def test_published_takes_what_it_does_not_replace(upright: Call, asked: list[Recipe]) -> None:
    agreeing = ("--batch", 128, "--optimizer", "adam", "--no-flips", "--no-cosine")
    for options in ((), agreeing, ("--steps", 3)):
        assert upright("train", "std*", *PUBLISHED, "--model", "etn10", *options)[0] == 0
    plain, agreed, shorter = asked
    assert agreed == plain
    assert plain.differences(shorter) == ["steps 3 instead of 600"]


def test_published_leaves_other_networks_the_options_given(
    upright: Call, asked: list[Recipe]
) -> None:
    options = ("--model", "resnet8", "--batch", 8, "--steps", 3, "--optimizer", "adam")
    assert upright("train", "std*", *PUBLISHED, *options)[0] == 0
    assert asked == [
        Recipe(
            **{"objective": "std*", "data": "npz:many.npz", "model": "resnet8"},
            **{"batch": 8, "steps": 3, "optimizer": "adam"},
        )
    ]


def test_options_left_out_are_the_recipes_and_help_says_them(
    upright: Call, asked: list[Recipe]
) -> None:
    assert upright("train", "KL(rob, Wo-10)", "--data", "npz:many.npz", "--out", "run")[0] == 0
    assert asked == [Recipe(data="npz:many.npz")]
    code, out, _ = upright("train", "--help")
    plain = " ".join(out.replace("│", " ").split())
    assert code == 0
    for option, default in (("steps INT", 80_000), ("optimizer {sgd,adam} SGD", "sgd")):
        assert f"(default: {default})" in plain.split(f"--{option}")[1].split(" --")[0]
    assert "--flips, --no-flips Mirror images left-right at random. (default: True)" in plain


@pytest.mark.filterwarnings("default")
def test_a_damaged_checkpoint_is_a_warning_of_one_line(upright: Call) -> None:
    upright("train", OBJECTIVE, *OPTIONS, *OFTEN, "--out", "run")
    before = newest(Path("run"))
    Path("run/checkpoints/00000012.safetensors").write_bytes(b"damaged")
    code, _, err = upright("train", OBJECTIVE, *OPTIONS, *OFTEN, "--out", "run", "--resume")
    assert code == 0
    assert err.startswith("upright: warning: the checkpoint of step 12 in run is damaged")
    assert err.count("\n") == 1
    assert newest(Path("run")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "run"], "run holds this run already; continue it with --resume"),
        (["--out", "run", "--seed", 1], "run belongs to another recipe (seed 1 instead of 0)"),
        (["--out", "run", "--resume", "--batch", 8], "run belongs to another recipe (batch 8"),
        (["--out", "new", "--model", "tiney"], "no network is called 'tiney'"),
        (["--out", "new", "--batch", 49], "48 images do not fill a batch of 49"),
        (["--out", "new", "--steps", 0], "steps must be at least 1"),
        (["--out", "new", "--checkpoint-every", 0], "checkpoint_every must be at least 1"),
        (["--out", "new", "--learning-rate", 1e30], "the loss or a weight is no longer finite"),
        (["--out", "colours.npz/run"], "colours.npz"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
    upright: Call, arguments: list[object], message: str
) -> None:
    upright("train", OBJECTIVE, *OPTIONS, "--out", "run")
    code, out, err = upright("train", OBJECTIVE, *OPTIONS, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"upright: error: {message}")
    assert err.count("\n") == 1


def test_a_misspelt_objective_is_told_and_one_of_another_form_shows_the_grammar(
    upright: Call,
) -> None:
    code, _, err = upright("train", "KLL(rob, Wo-2)", *OPTIONS, "--out", "run")
    assert code == 2
    assert "no regularizer is called 'KLL' (nearest: KL)" in err
    assert err.count("\n") == 1
    code, _, err = upright("train", "KL(rob)", *OPTIONS, "--out", "run")
    assert (code, grammar() in err) == (2, True)
    assert not Path("run").exists()


@pytest.mark.parametrize("objective", ["Hinge(rob, Wo-2)", "KL(rob, corners)"])
def test_a_run_of_a_name_that_is_not_known_here_is_not_damaged(
    upright: Call, objective: str
) -> None:
    upright("train", OBJECTIVE, *OPTIONS, "--out", "run")
    content = json.loads(Path("run/run.json").read_text())
    content["recipe"]["objective"] = objective
    Path("run/run.json").write_text(json.dumps(content))
    code, _, err = upright("evaluate", "run", "--data", "npz:colours.npz", "--attack", "rnd")
    assert code == 2
    assert f"run/run.json: cannot read the objective '{objective}': no " in err
    assert "for one of your own, import the file that names it" in err
    assert "damaged" not in err
    assert err.count("\n") == 1


def test_a_run_that_has_no_checkpoint_cannot_be_evaluated(upright: Call) -> None:
    upright("train", OBJECTIVE, *OPTIONS, "--learning-rate", 1e30, "--out", "run")
    code, _, err = upright("evaluate", "run", "--data", "npz:colours.npz")
    assert code == 2
    assert err.startswith("upright: error: run has no checkpoint yet; train it first")
