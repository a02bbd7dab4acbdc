"""Runs that start from weights of a file, or of another run, in place of fresh ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tiny_runs import build_tiny, colours, newest, tiny_recipe, tiny_run
from upright import Normalised
from upright.models import network
from upright.models.enlarged import Enlarged
from upright.train import FreshLayer, load_network, train
from upright.train.learner import Learner
from upright.train.pretrained import read_pretrained
from upright.train.weight_files import weights_digest

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known

CPU = torch.device("cpu")


def tiny(classes: int = 3, seed: int = 7) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_tiny({}, None, classes=classes, channels=3)


def saved(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Write weights as ``path`` says, and give its name."""
    if path.suffix == ".safetensors":
        save_file(dict(weights), path)
    else:
        torch.save(weights, path)
    return str(path)


def first_weights(**changes: object) -> dict[str, Tensor]:
    """The weights before the first step."""
    return Learner(tiny_recipe(**changes), colours(), CPU).model.state_dict()


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(map(torch.equal, first.values(), second.values()))


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_run_starts_from_the_weights_of_a_file(tmp_path: Path, name: str) -> None:
    theirs = tiny().state_dict()
    file = saved(tmp_path / name, theirs)
    assert not same(first_weights(), theirs)
    assert same(first_weights(pretrained=file), theirs)


def test_a_run_starts_from_what_came_out_of_another(tmp_path: Path) -> None:
    before = tiny_run(tmp_path / "before", average=0.8)
    found = first_weights(pretrained=str(before.path))
    assert same(found, before.model.state_dict())
    assert same(found, load_network(before.path).state_dict())


def test_half_precision_is_read_as_what_it_stands_for(tmp_path: Path) -> None:
    halves = {name: each.bfloat16() for name, each in tiny().state_dict().items()}
    del halves["2.num_batches_tracked"]
    found = first_weights(pretrained=saved(tmp_path / "half.safetensors", halves))
    for name, half in halves.items():
        assert torch.equal(found[name], half.float()), name


@pytest.mark.parametrize("theirs", [2, 4, 1000])
def test_a_last_layer_of_other_classes_starts_fresh_and_a_line_says_so(
    tmp_path: Path, theirs: int
) -> None:
    weights = tiny(theirs).state_dict()
    file = saved(tmp_path / "w.pth", weights)
    found, fresh = first_weights(pretrained=file), first_weights()
    for name, tensor in found.items():
        assert torch.equal(tensor, (fresh if name.startswith("7.") else weights)[name]), name
    said = f"the last layer (7) starts fresh: there are 3 classes, and {theirs} in {file}"
    with pytest.warns(FreshLayer, match=re.escape(said)) as caught:
        tiny_run(tmp_path / "run", pretrained=file)
    assert len(caught) == 1
    tiny_run(tmp_path / "run", pretrained=file, resume=True)  # where nothing starts


def without(weights: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: each for name, each in weights.items() if name not in names}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda w: without(w, "1.weight"), "it lacks 1.weight"),
        (lambda w: w | {"stem.bias": torch.ones(2)}, "it has besides stem.bias"),
        (
            lambda w: w | {"1.weight": torch.ones(4, 3, 5, 5)},
            "it has in other sizes 1.weight (4 x 3 x 5 x 5 instead of 4 x 3 x 3 x 3)",
        ),
        # A layer of other classes does not excuse another difference, nor one of another kind.
        (
            lambda w: w | {"7.weight": torch.ones(5, 8), "7.bias": torch.ones(5)},
            "it has in other sizes 7.weight (5 x 8 instead of 3 x 16), 7.bias (5 instead of 3)",
        ),
        (
            lambda w: w | {"7.weight": torch.ones(5, 16), "7.bias": torch.ones(6)},
            "it has in other sizes 7.weight (5 x 16 instead of 3 x 16), 7.bias (6 instead of 3)",
        ),
        (
            lambda w: w | {"7.bias": torch.tensor(1.0)},
            "it has in other sizes 7.bias (one number instead of 3)",
        ),
        (
            lambda w: {f"net.{name}": each for name, each in w.items()},
            "it lacks 1.weight, 2.weight, 2.bias, 2.running_mean and 3 more; it has besides "
            "net.1.weight, net.2.weight, net.2.bias, net.2.running_mean and 3 more",
        ),
    ],
)
def test_any_other_difference_is_an_error_that_names_the_tensors(
    tmp_path: Path, changed: object, said: str
) -> None:
    assert callable(changed)
    file = saved(tmp_path / "w.pth", changed(tiny().state_dict()))
    recipe, out = tiny_recipe(pretrained=file), tmp_path / "run"
    with pytest.raises(ValueError, match=re.escape(f"another network than tiny: {said}")):
        train(recipe, out, data=colours())
    assert not out.exists()


def test_weights_that_are_nan_are_an_error_that_names_them(tmp_path: Path) -> None:
    weights = tiny().state_dict()
    name = max(weights)
    weights[name] = torch.full_like(weights[name], float("nan"))
    file = saved(tmp_path / "w.safetensors", weights)
    with pytest.raises(ValueError, match=f"w.safetensors has weights that are NaN: {name}$"):
        first_weights(pretrained=file)


def test_counts_of_batches_may_be_there_or_not(tmp_path: Path) -> None:
    weights = tiny().state_dict()
    assert "2.num_batches_tracked" in weights
    file = saved(tmp_path / "w.pth", without(weights, "2.num_batches_tracked"))
    found = first_weights(pretrained=file)
    assert same(without(found, "2.num_batches_tracked"), torch.load(file))
    file = saved(tmp_path / "more.pth", weights | {"9.num_batches_tracked": torch.tensor(1)})
    assert same(first_weights(pretrained=file), weights)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_file_need_not_know_what_stands_around_its_network(tmp_path: Path, depth: int) -> None:
    """Enlarged around Normalised around the network: the file is of any of the three."""

    def around(net: nn.Module) -> list[nn.Module]:
        normalised = Normalised(net, [0.5] * 3, [0.25] * 3)
        return [Enlarged(normalised, 12), normalised, net]

    network("around", "around")(
        lambda *, classes, channels: around(
            build_tiny({}, None, classes=classes, channels=channels)
        )[0]
    )
    outer, *inner = around(tiny())
    file = saved(tmp_path / "w.pth", [outer, *inner][depth].state_dict())
    assert same(first_weights(model="around", pretrained=file), outer.state_dict())


# The recipe and the run.


def test_the_digest_is_that_of_names_and_values_whatever_the_file(tmp_path: Path) -> None:
    weights = tiny().state_dict()
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].numpy().tobytes())
    files = [saved(tmp_path / name, weights) for name in ("w.pth", "w.safetensors")]
    noted = {
        train(
            tiny_recipe(pretrained=file, steps=1), f"{file}-run", data=colours()
        ).recipe.pretrained_digest
        for file in files
    }
    assert noted == {digest.hexdigest()}
    assert weights_digest({"a": torch.tensor(1.0).bfloat16()}) == (
        hashlib.sha256(b"a\x80\x3f").hexdigest()
    )


def test_a_recipe_that_knows_its_weights_starts_from_no_others(tmp_path: Path) -> None:
    file = saved(tmp_path / "w.pth", tiny().state_dict())
    run = train(tiny_recipe(pretrained=file, steps=2), tmp_path / "run", data=colours())
    assert len(run.recipe.pretrained_digest) == 64
    saved(tmp_path / "w.pth", tiny(seed=8).state_dict())
    with pytest.raises(ValueError, match="are not those that the recipe starts from"):
        train(run.recipe, tmp_path / "again", data=colours())
    asked = replace(run.recipe, pretrained_digest="")
    with pytest.raises(ValueError, match=r"belongs to another recipe \(pretrained_digest"):
        train(asked, tmp_path / "run", data=colours(), resume=True)


def test_without_it_nothing_is_read_and_nothing_noted(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", steps=1)
    assert (run.recipe.pretrained, run.recipe.pretrained_digest) == ("", "")


@pytest.mark.filterwarnings("ignore::upright.train.FreshLayer")
def test_a_run_that_was_broken_off_ends_where_the_unbroken_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(tmp_path / "w.pth", tiny(5).state_dict())
    tiny_run(tmp_path / "unbroken", pretrained=file)
    step = Learner.step

    def fail_at_7(learner: Learner, number: int) -> None:
        if number == 7:
            raise ZeroDivisionError
        step(learner, number)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", fail_at_7)
        with pytest.raises(ZeroDivisionError):
            tiny_run(tmp_path / "broken", pretrained=file)
    assert tiny_run(tmp_path / "broken", pretrained=file, resume=True).finished
    assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")
    Path(file).unlink()
    load_network(tmp_path / "broken")  # which has weights of its own


@pytest.mark.parametrize(
    ("source", "said"),
    [("gone.pth", "no such file"), (".", "is not a run directory"), ("x.pth", "cannot be read")],
)
def test_what_holds_no_weights_is_said_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.pth").write_bytes(b"none")
    with pytest.raises(ValueError, match=said):
        train(tiny_recipe(pretrained=source), "run", data=colours())
    assert not Path("run").exists()


def test_a_run_without_a_checkpoint_gives_no_weights(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", steps=1)
    for file in (run.path / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match="no checkpoint yet"):
        read_pretrained(str(run.path))
