"""``upright train --pretrained``, of any network: what starts, what is said, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tiny_runs import Call, colours, save_as_npz
from upright.models import build_network
from upright.train import load_network

OWN = """
from torch import nn
from upright import Normalised

def make(classes):
    network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, classes))
    return Normalised(network, [0.5], [0.5])
"""
STILL = ("--data", "npz:colours.npz", "--steps", 1, "--batch", 8, "--device", "cpu")
STILL += ("--learning-rate", 0, "--weight-decay", 0)


@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.filterwarnings("default::upright.train.FreshLayer")  # as for users
def test_a_network_of_ones_own_starts_from_the_file(upright: Call, classes: int) -> None:
    Path("own.py").write_text(OWN)
    weight, bias = torch.rand(classes, 12), torch.rand(classes)
    torch.save({"2.weight": weight, "2.bias": bias}, "weights.pth")
    command = ("train", "std", *STILL, "--model", "own.py:make", "--pretrained", "weights.pth")
    code, _, err = upright(*command, "--out", "run")
    said = "the last layer (2) starts fresh: there are 3 classes, and 5 in weights.pth"
    assert (code, err) == (0, "" if classes == 3 else f"upright: warning: {said}\n")
    found = load_network(Path("run")).state_dict()
    assert torch.equal(found["network.2.weight"], weight) == (classes == 3)
    save_as_npz(colours(9), Path("others.npz"))
    assert upright("evaluate", "run", "--data", "npz:others.npz", "--attack", "rnd")[0] == 0


def test_several_objectives_start_from_one_run(upright: Call) -> None:
    model = ("--model", "convnet0.25")
    assert upright("train", "std", *STILL, *model, "--out", "first", "--seed", 4)[0] == 0
    code, _, err = upright(
        *("train", "std", "std*", *STILL, *model, "--pretrained", "first", "--out", "both")
    )
    assert (code, err) == (0, "")
    first = [each for _, each in load_network(Path("first")).named_parameters()]
    for name in ("std-seed-0", "std-star-seed-0"):
        recipe = json.loads(Path("both", name, "run.json").read_text())["recipe"]
        assert (recipe["pretrained"], len(recipe["pretrained_digest"])) == ("first", 64)
        found = [each for _, each in load_network(Path("both", name)).named_parameters()]
        assert all(map(torch.equal, found, first))


def test_weights_of_another_network_are_refused_in_one_line(upright: Call) -> None:
    torch.save(build_network("convnet0.5", classes=3).state_dict(), "wide.pth")
    code, _, err = upright(
        *("train", "std", *STILL, "--model", "convnet0.25", "--pretrained", "wide.pth"),
        *("--out", "run"),
    )
    assert code == 2
    assert err.startswith("upright: error: wide.pth holds weights of another network than convnet")
    assert "2.weight (12 x 3 x 3 x 3 instead of 6 x 3 x 3 x 3)" in err
    assert err.count("\n") == 1
    assert not Path("run").exists()
