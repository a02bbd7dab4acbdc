"""``upright train --model FILE.py:FACTORY``, and images of a folder in any size."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from tiny_runs import Call, colours, newest, save_as_npz, tiny_recipe
from upright import SuspiciousInput
from upright.data import load_data
from upright.factories import code_digest
from upright.measure.measured import digests_of
from upright.models import network, network_forms
from upright.models.registry import NETWORKS
from upright.record_files import read
from upright.train import Recipe, load_network, train, train_together
from upright.train.network import build
from upright.zoo import unpack

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, *, classes=3, channels=3):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(channels, 4, 3), nn.Linear(4, classes)

    def forward(self, images):
        return {"logits": self.linear(self.conv(images).relu().mean((2, 3)))}

def make():
    return Net()

def of_ten(classes, width=2):
    return Net(classes=10)

def needy(depth):
    return Net()

def function():
    return lambda images: images

net = Net()
"""
OPTIONS = ("--data", "npz:colours.npz", "--steps", 4, "--batch", 8, "--device", "cpu")


@pytest.fixture
def upright(upright: Call) -> Call:
    Path("own.py").write_text(CODE)
    return upright


@pytest.mark.parametrize("model", ["own.py:make", "own.py:Net", "mine.nets:Net"])
def test_a_network_of_one_s_own_is_trained_evaluated_and_recorded(
    upright: Call, model: str
) -> None:
    Path("mine").mkdir()
    Path("mine/nets.py").write_text(CODE)
    code, _, err = upright("train", "KL(rob, Wo-2)", *OPTIONS, "--model", model, "--out", "run")
    assert (code, err) == (0, "")
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert (recipe["model"], recipe["model_digest"]) == (
        model,
        hashlib.sha256(CODE.encode()).hexdigest(),
    )
    save_as_npz(colours(30), Path("others.npz"))
    asked = ("--data", "npz:others.npz", "--attack", "rnd", "--record", "r.jsonl")
    code, _, err = upright("evaluate", "run", *asked)
    assert (code, err) == (0, "")
    (record,) = read("r.jsonl").records
    assert (record.method, record.model, record.steps) == ("KL(rob, Wo-2)", model, 4)


def test_its_first_weights_are_those_of_the_seed(upright: Call) -> None:
    common = (*OPTIONS, "--model", "own.py:make", "--learning-rate", 0)
    assert upright("train", "std", *common, "--seeds", "0-1", "--out", "both")[0] == 0
    assert upright("train", "std", *common, "--seed", 1, "--out", "one")[0] == 0
    assert newest(Path("both/std-seed-1")) == newest(Path("one"))
    first, second = (
        torch.cat([w.flatten() for w in load_network(Path(f"both/std-seed-{s}")).parameters()])
        for s in (0, 1)
    )
    assert not torch.equal(first, second)


def test_a_run_goes_on_with_the_same_code_only_and_is_evaluated_with_a_warning(
    upright: Call,
) -> None:
    command = ("train", "std", *OPTIONS, "--model", "own.py:make", "--out", "run", "--resume")
    assert upright(*command)[0] == 0
    assert upright(*command)[0] == 0
    Path("own.py").write_text(CODE + "# changed\n")
    code, _, err = upright(*command)
    assert code == 2
    assert err == (
        "upright: error: run was begun with other code than own.py:make has now; bring the old "
        "file back, or choose another folder\n"
    )
    with pytest.warns(SuspiciousInput, match="has changed since run was trained with it"):
        load_network(Path("run"))
    Path("own.py").unlink()
    code, _, err = upright("evaluate", "run", "--data", "npz:colours.npz")
    assert code == 2
    assert err == (
        "upright: error: run: own.py is not in this folder; run it from the folder that has "
        "own.py\n"
    )


def test_code_that_lies_beside_a_run_is_not_run(
    upright: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may be a stranger's: only the folder that one is in is one's own."""
    command = ("train", "std", *OPTIONS, "--model", "own.py:make", "--out", "run")
    assert upright(*command)[0] == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    Path("../own.py").write_text("raise SystemExit('was run')")
    code, _, err = upright("evaluate", "../run", "--data", "npz:../colours.npz")
    assert code == 2
    assert err.endswith("own.py is not in this folder; run it from the folder that has own.py\n")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("own.py:net", "own.py:net is a network that is made already; name its class"),
        ("own.py:of_ten", "own.py:of_ten gives 10 outputs, but 3 are to be trained"),
        ("own.py:needy", "own.py:needy asks for arguments (depth), but is offered classes, num"),
        ("own.py:function", "own.py:function gives a function, which has no weights to train"),
        ("own.py", "own.py needs a factory; choose from own.py:Net, own.py:make"),
        ("nowhere.py:make", "nowhere.py: no such file"),
        ("no.such:make", "no module is called 'no'; install it"),
        ("hf:foo", "no module is called 'hf', and no other kind of name begins so (there are enl"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_folder_is_made(
    upright: Call, model: str, message: str
) -> None:
    code, _, err = upright("train", "std", *OPTIONS, "--model", model, "--out", "run")
    assert code == 2
    assert err.startswith(f"upright: error: {message}")
    assert err.count("\n") == 1
    assert not Path("run").exists()


def test_a_recipe_that_knows_its_code_runs_no_other(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(CODE)
    recipe = Recipe(objective="std", data="glyphs", model=f"{file}:make", model_digest="0" * 64)
    with pytest.raises(ValueError, match="is not that of the recipe"):
        train(recipe, tmp_path / "run")


def test_the_zoo_runs_no_code_that_a_file_names(upright: Call) -> None:
    assert upright("train", "std", *OPTIONS, "--model", "own.py:make", "--out", "run")[0] == 0
    code, _, err = upright("zoo", "add", "run", "--into", "zoo")
    assert code == 2
    assert "the zoo has networks of this package only" in err
    weights = newest(Path("run"))
    Path("own.py").write_text("raise SystemExit('was run')")
    with pytest.raises(ValueError, match=r"own\.py:make is not of this package"):
        unpack(weights, "own.py:make", classes=3, channels=3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of two classes, no two of one size."""
    for number, (name, colour) in enumerate([("blue", (0, 0, 255)), ("red", (255, 0, 0))] * 4):
        file = tmp_path / "photos" / name / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + 3 * number, 16 + number), colour).save(file)
    return tmp_path / "photos"


def test_pictures_of_any_size_are_trained_on_and_evaluated_in_the_run_s_size(
    upright: Call, photos: Path
) -> None:
    run = ("--model", "convnet0.25", "--steps", 3, "--batch", 4, "--device", "cpu", "--out", "run")
    code, _, err = upright("train", "std*", "--data", f"folder:{photos}", *run)
    assert code == 2
    assert "--resize and --center-crop on the command line" in err
    size = ("--resize", 14, "--center-crop", 12)
    code, _, err = upright("train", "std*", "--data", f"folder:{photos}", *run, *size)
    assert (code, err) == (0, "")
    recipe = Recipe.from_json(json.loads(Path("run/run.json").read_text())["recipe"])
    assert (recipe.resize, recipe.center_crop) == (14, 12)

    for options in ((), ("--resize", 12, "--center-crop", 8)):
        asked = ("--data", f"folder:{photos}", "--attack", "rnd", "--record", "r.jsonl")
        code, out, _ = upright("evaluate", "run", *asked, "--json", "-", *options)
        assert code == 0
        assert json.loads(out)["options"]["resize"] == (options[1] if options else 14)
    as_trained, other = read("r.jsonl").records
    wanted = load_data(f"folder:{photos}", resize=14, center_crop=12)
    assert as_trained.evaluation["resize"] == 14
    assert as_trained.data_digest == digests_of(wanted, "test")
    assert (other.evaluation["resize"], other.evaluation["center_crop"]) == (12, 8)
    # Data that have a size of their own keep it.
    save_as_npz(wanted, Path("two.npz"))
    assert upright("evaluate", "run", "--data", "npz:two.npz", "--attack", "rnd")[0] == 0


def test_runs_side_by_side_have_images_of_one_size(tmp_path: Path, photos: Path) -> None:
    recipes = {
        tmp_path / str(side): Recipe(objective="std", data=f"folder:{photos}", center_crop=side)
        for side in (8, 12)
    }
    with pytest.raises(ValueError, match="runs side by side need the same data"):
        train_together(recipes)


def test_a_factory_gets_what_it_has_parameters_for(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(CODE)
    network = build(f"{tmp_path / 'nets.py'}:Net", classes=7, channels=2)
    assert isinstance(network, nn.Module)
    answer = network(torch.rand(1, 2, 8, 8))["logits"]
    assert isinstance(answer, Tensor)
    assert answer.shape == (1, 7)


@pytest.mark.parametrize(
    "signature",
    [
        "classes, channels",
        "num_classes, in_channels",
        "num_classes=1000, in_chans=3",
        "width=4, *, in_chans, **kwargs",
    ],
)
def test_the_usual_names_of_the_numbers_of_classes_and_channels(
    tmp_path: Path, signature: str
) -> None:
    outputs = next(name for name in ("num_classes", "classes", "kwargs") if name in signature)
    inputs = next(name for name in ("in_channels", "in_chans", "channels") if name in signature)
    outputs += "['num_classes']" * (outputs == "kwargs")
    made = f"def make({signature}):\n    return Net(classes={outputs}, channels={inputs})\n"
    (tmp_path / "nets.py").write_text(CODE + made)
    network = build(f"{tmp_path / 'nets.py'}:make", classes=7, channels=2)
    assert network(torch.rand(1, 2, 8, 8))["logits"].shape == (1, 7)


@pytest.mark.parametrize("signature", ["classes=3, **kwargs", "num_classes=3, **kwargs"])
def test_kwargs_get_nothing_that_has_a_parameter(tmp_path: Path, signature: str) -> None:
    made = f"def make({signature}):\n    assert not kwargs\n    return Net()\n"
    (tmp_path / "nets.py").write_text(CODE + made)
    build(f"{tmp_path / 'nets.py'}:make", classes=3, channels=3)


def test_a_network_of_torchvision_s_kind_needs_no_wrapper(upright: Call) -> None:
    """A function that gives its ``**kwargs`` to a class."""
    made = "def small(*, weights=None, progress=True, **kwargs):\n    return Vision(**kwargs)\n"
    named = CODE.replace("Net", "Vision").replace("classes=3, channels=3", "num_classes")
    named = named.replace("Conv2d(channels", "Conv2d(3").replace("4, classes", "4, num_classes")
    Path("own.py").write_text(named.split("def make")[0] + made)
    code, _, err = upright("train", "std", *OPTIONS, "--model", "own.py:small", "--out", "run")
    assert (code, err) == (0, "")


def test_the_digest_is_of_the_file_that_defines_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "passing_on"
    package.mkdir()
    (package / "__init__.py").write_text("from passing_on.nets import Net, make, net\n")
    (package / "nets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("Net", "make"):
        assert code_digest(f"passing_on:{name}") == hashlib.sha256(CODE.encode()).hexdigest()


def test_a_file_is_digested_without_being_run(tmp_path: Path) -> None:
    code = "raise SystemExit('was run')"
    (tmp_path / "own.py").write_text(code)
    assert code_digest(f"{tmp_path / 'own.py'}:make") == hashlib.sha256(code.encode()).hexdigest()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda **_: nn.Sequential(nn.Flatten(), nn.Linear(192, 7)), "gives 7 outputs, but 3 are"),
        (lambda **_: lambda images: images, "gives a function, which has no weights to train"),
    ],
)
def test_a_network_by_a_name_of_one_s_own_is_looked_at_as_a_file_s_is(
    build: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network_forms()  # all of ours are there, and stay
    monkeypatch.setattr(NETWORKS, "_entries", dict(NETWORKS._entries))
    network("own-by-name", "own-by-name")(build)
    with pytest.raises(ValueError, match=f"own-by-name {message}"):
        train(tiny_recipe(model="own-by-name"), tmp_path / "run", data=colours())
