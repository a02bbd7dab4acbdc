"""What somebody who has just come tries, and what is said to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from upright import Normalised, Objective, RegularizedLoss, ensemble, evaluate, load_model, warp
from upright.checks import SuspiciousInput
from upright.intervals import difference
from upright.penalties import Penalty
from upright.pose import Pose

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
