"""What somebody who has just come tries, and what is said to it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from upright import (
    Normalised,
    Objective,
    RegularizedLoss,
    ensemble,
    evaluate,
    load_model,
    warp,
    zoo,
)
from upright.checks import SuspiciousInput
from upright.data import load_data
from upright.intervals import difference
from upright.penalties import Penalty
from upright.pose import Pose
from upright.train import Recipe, load_network, train
from upright.train.weight_files import read_weights

IMAGES = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % 4


def network(outputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, outputs)).eval()


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64", "int16"])
def test_labels_may_be_whole_numbers_of_any_kind(kind: str) -> None:
    model, numbers = network(), LABELS.numpy().astype(kind)
    found = evaluate(model, (IMAGES.numpy(), numbers), attacks=["wo-2"])
    usual = evaluate(model, (IMAGES, LABELS), attacks=["wo-2"])
    assert found.natural_correct.equal(usual.natural_correct)


def test_a_loss_takes_no_labels_that_torch_cannot_compare() -> None:
    labels = torch.as_tensor(LABELS.numpy().astype(np.uint16))
    with pytest.raises(ValueError, match=r"class numbers \(int64\), but are torch\.uint16"):
        RegularizedLoss("std")(network(), IMAGES, labels)


def test_one_attack_by_two_names_is_asked_for_once() -> None:
    with pytest.raises(ValueError, match="'Wo-3' and 'wo-3' are one attack: ask for it once"):
        evaluate(network(), (IMAGES, LABELS), attacks=["wo-3", "wo-3", "Wo-3"])


def test_one_image_is_given_a_first_axis() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 8, 8\); give one image as images\[None\]"):
        warp(IMAGES[0], Pose.zeros(1))


def test_probabilities_among_logits_are_seen() -> None:
    sure = nn.Sequential(network(), nn.Softmax(1)).eval()
    with pytest.warns(SuspiciousInput, match="look like probabilities"):
        evaluate(ensemble(network(), sure), (IMAGES, LABELS), attacks=["wo-2"])


def test_one_mean_for_all_channels() -> None:
    given, model = Normalised(nn.Flatten(), 0.5, 0.25), Normalised(nn.Flatten(), [0.5], [0.25])
    assert given(IMAGES).equal(model(IMAGES))


def test_models_are_compared_by_lists_too() -> None:
    assert difference([True, False], [False, False]).first_alone == 1  # type: ignore[arg-type]


def test_a_path_is_a_name_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(network(), (IMAGES,)), path)
    loaded = load_model(path)
    assert loaded(IMAGES).shape == (8, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LocNet(black)", "a LocNet is no classifier's; a Recipe and `upright train` take it"),
        ("KL(rob, Wo-10, λ=2)", "options come after a semicolon, as in"),
    ],
)
def test_what_is_wrong_with_a_name_of_a_method(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Objective.parse(text)
    assert not hasattr(caught.value, "__notes__")


@dataclass(frozen=True)
class Rooted(Penalty):
    """Half of its values are no numbers."""

    def __call__(self, natural: Tensor, transformed: Tensor) -> Tensor:
        return (transformed - natural).sum(-1).sqrt()


def test_a_penalty_that_is_no_number_is_told_in_the_first_batch() -> None:
    objective = Objective(batch="rob", penalty=Rooted(), attack=Objective.parse("std*").attack)
    with pytest.raises(ValueError, match="the penalty is nan where all logits are numbers"):
        RegularizedLoss(objective)(network(), IMAGES, LABELS)


def test_a_climb_of_a_model_whose_gradient_is_no_number_says_so_and_what_needs_none() -> None:
    inner = network()

    def model(images: Tensor) -> Tensor:
        # The root of what is never taken is no number, and so is the slope of what is.
        return inner(torch.where(images > -1, images, (images - 2).sqrt()))

    assert evaluate(model, (IMAGES, LABELS), attacks=["wo-2"]).natural_accuracy >= 0
    with pytest.raises(ValueError, match=r"or such a gradient, for image 0.* wo-10 need no grad"):
        evaluate(model, (IMAGES, LABELS), attacks=["s-pgd"])


class TestInfiniteLogits:
    """A network that overflows in half precision says infinity, of which no loss comes."""

    @staticmethod
    def saying(value: float) -> nn.Module:
        torch.manual_seed(0)
        model = network()
        with torch.no_grad():
            model[-1].bias[0] = value  # type: ignore[index, union-attr]
        return model

    @pytest.mark.parametrize("label", [0, 1])
    @pytest.mark.parametrize("attacks", [["wo-2"], ["grid-3x3x3"], []])
    def test_are_refused(self, label: int, attacks: list[str]) -> None:
        labels = torch.full_like(LABELS, label)
        with pytest.raises(ValueError, match="NaN or infinite logits for image 0"):
            evaluate(self.saying(torch.inf), (IMAGES, labels), attacks=attacks)
        with pytest.raises(ValueError, match="NaN or infinite logits"):
            RegularizedLoss("KL(rob, Wo-2)")(self.saying(torch.inf), IMAGES, labels)

    def test_a_class_that_is_left_out_is_never_the_answer(self) -> None:
        found = evaluate(self.saying(-torch.inf), (IMAGES, LABELS), attacks=["wo-2"])
        others = evaluate(self.saying(-1e4), (IMAGES, LABELS), attacks=["wo-2"])
        assert found.natural_correct.equal(others.natural_correct)
        assert found.attacks["wo-2"].accuracy == others.attacks["wo-2"].accuracy


def test_answers_in_whole_numbers_are_understood() -> None:
    model, data = network(), (IMAGES, LABELS)
    votes = evaluate(lambda images: (1000 * model(images)).long(), data, attacks=["wo-2"])
    usual = evaluate(lambda images: (1000 * model(images)).trunc(), data, attacks=["wo-2"])
    assert votes.natural_correct.equal(usual.natural_correct)
    assert votes.attacks["wo-2"].accuracy == usual.attacks["wo-2"].accuracy


def test_a_model_that_borrows_the_name_of_what_makes_it_is_one() -> None:
    model = network()

    def make() -> nn.Module:
        return model

    @functools.wraps(make)
    def answers(images: Tensor) -> Tensor:
        return model(images)  # type: ignore[no-any-return]

    assert len(evaluate(answers, (IMAGES, LABELS), attacks=["rnd"])) == len(IMAGES)


def test_a_class_that_is_left_out_leaves_no_penalty() -> None:
    model = TestInfiniteLogits.saying(-torch.inf)
    RegularizedLoss("std*")(model, IMAGES, torch.ones_like(LABELS)).total.backward()
    with pytest.raises(ValueError, match="leaves a class out, with which there is no penalty"):
        RegularizedLoss("L2(rob, Wo-2)")(model, IMAGES, torch.ones_like(LABELS))


def test_what_makes_a_model_is_told_from_one() -> None:
    class Net(nn.Module):
        pass

    def make() -> nn.Module:
        return network()

    for maker, name in ((Net, "Net"), (make, "make")):
        with pytest.raises(ValueError, match=f"but {name} makes one; call it first"):
            evaluate(maker, (IMAGES, LABELS), attacks=["rnd"])  # type: ignore[arg-type]


OWN = """
import torch
from torch import nn

def lazy(classes):
    waiting = nn.LazyLinear(8), nn.LazyBatchNorm1d()
    return nn.Sequential(nn.Flatten(), *waiting, nn.Linear(8, classes))

def sure(classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes), nn.Softmax(1))

def broken(classes):
    made = nn.Sequential(nn.Flatten(), nn.Linear(3072, classes))
    with torch.no_grad():
        made[1].weight[0, 0] = float("nan")
    return made
"""


class TestOwnNetworksInTraining:
    @pytest.fixture(autouse=True)
    def _own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "own.py").write_text(OWN)
        monkeypatch.chdir(tmp_path)

    @staticmethod
    def recipe(factory: str) -> Recipe:
        return Recipe(
            objective="std", data="glyphs", train_images=64, model=f"own.py:{factory}", steps=2
        )

    def test_layers_that_wait_for_their_first_images_come_back_with_their_weights(self) -> None:
        trained = train(self.recipe("lazy"), "runs/lazy")
        images = torch.rand(5, 3, 32, 32)
        again = load_network("runs/lazy")
        assert again(images).shape == (5, 10)
        kept = again.state_dict()
        assert kept["1.weight"].shape == (8, 3072)
        assert load_network(trained.path)(images).equal(again(images))

    def test_one_that_ends_in_a_softmax_is_told_of_before_it_is_trained(self) -> None:
        with pytest.warns(SuspiciousInput, match="look like probabilities; return logits"):
            train(self.recipe("sure"), "runs/sure")

    def test_one_whose_weights_are_no_numbers_is_not_trained(self) -> None:
        with pytest.raises(ValueError, match="NaN or infinite logits; check its weights"):
            train(self.recipe("broken"), "runs/broken")


def test_what_a_folder_of_pictures_leaves_out_is_told(tmp_path: Path) -> None:
    for place, name in enumerate(["a/1.png", "a/2.JFIF", "b/1.png", "b/more/2.png", "b/3.heic"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(np.full((8, 8, 3), 40 * place, np.uint8))
        picture.save(tmp_path / name, "png")
    (tmp_path / "a" / "Thumbs.db").write_bytes(b"")
    told = r"left out: .* pictures \(1 \.heic\) and folders inside of classes \(1, such as .*more\)"
    with pytest.warns(SuspiciousInput, match=told):
        assert len(load_data(f"folder:{tmp_path}")) == 3


def test_a_zoo_that_is_no_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPRIGHT_ZOO", str(tmp_path / "none"))
    with pytest.warns(SuspiciousInput, match="UPRIGHT_ZOO names .*none, which is no folder"):
        assert "cifar10/std" in zoo.names()


def test_a_model_of_onnx_is_no_file_of_weights(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"any")
    with pytest.raises(ValueError, match="is a model of ONNX, and not weights alone"):
        read_weights(str(tmp_path / "net.onnx"))
