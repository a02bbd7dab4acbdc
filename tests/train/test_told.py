"""What training used to do otherwise than it was meant, without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tiny_runs import colours, tiny_recipe, tiny_run
from upright import Objective, RegularizedLoss, SpatialPGD, load_model
from upright.checks import SuspiciousInput
from upright.data import LabelledImages
from upright.penalties import L2
from upright.train import train
from upright.train.weight_files import as_called_in, read_weights

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known

IMAGES = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(8) % 4


def network(outputs: int = 4) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 6, outputs)).double()


# --- runs -------------------------------------------------------------------------------------


def test_runs_of_a_mean_see_alike_whether_it_is_recorded_or_not(tmp_path: Path) -> None:
    runs = [tiny_run(tmp_path / f"view-{view}", view=view).path for view in (6, 8)]
    with pytest.raises(ValueError, match="need images of one size: train them with the same"):
        load_model(f"mean:{runs[0]},{runs[1]}")


def test_a_teacher_of_other_images_is_told(tmp_path: Path) -> None:
    teacher = tiny_run(tmp_path / "teacher", resize=8)
    with pytest.warns(SuspiciousInput, match="was trained with another --resize or --center-crop"):
        tiny_run(tmp_path / "run", teacher=str(teacher.path), teacher_share=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out": True}, "held_out leaves images out of data that are loaded by their name"),
        ({"train_images": 5}, "train_images is 5, but 48 images are given"),
    ],
)
def test_data_that_are_given_are_what_the_recipe_says(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(tiny_recipe(**changes), tmp_path / "run", data=colours())
    assert not (tmp_path / "run").exists()


def test_data_of_one_class_are_refused(tmp_path: Path) -> None:
    whole = colours()
    one = LabelledImages(whole.images, torch.zeros_like(whole.labels), ("only",))
    with pytest.raises(ValueError, match="has one class, only, and there is nothing to tell apart"):
        train(tiny_recipe(), tmp_path / "run", data=one)


class Around(nn.Module):
    """Calls a part of itself as DistributedDataParallel calls all."""

    def __init__(self, *, head: bool) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)
        if head:
            self.head = nn.Linear(2, 2)


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_part_that_is_called_module_keeps_its_name(
    tmp_path: Path, head: bool, wrapped: bool
) -> None:
    network = Around(head=head)
    saved = {("module." if wrapped else "") + n: w for n, w in network.state_dict().items()}
    torch.save(saved, tmp_path / "w.pth")
    found = as_called_in(network, read_weights(str(tmp_path / "w.pth")))
    assert found.keys() == network.state_dict().keys()


# --- the loss ---------------------------------------------------------------------------------


def test_a_network_with_one_output_has_nothing_to_compare() -> None:
    def cost(logits: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits[:, 0], labels.double(), reduction="none")

    loss = RegularizedLoss("KL(rob, Wo-2)", criterion=cost)
    with pytest.raises(ValueError, match="has one output, of which probabilities never differ"):
        loss(network(1), IMAGES, LABELS % 2)
    flat = network(1)
    nn.init.zeros_(flat[1].weight)
    assert RegularizedLoss("L2(rob, Wo-2)", criterion=cost)(flat, IMAGES, LABELS % 2).penalty == 0


@pytest.mark.parametrize(
    ("labels", "advice"),
    [
        (LABELS[:, None], r"take labels\[:, 0\]"),
        (LABELS[None], r"take labels\[0\]"),
        (F.one_hot(LABELS), r"of one-hot rows take labels.argmax\(1\)"),
        (LABELS[:, None, None].expand(-1, 6, 6), "labels of pixels are not understood"),
    ],
)
def test_labels_in_too_many_axes_get_advice_that_fits(labels: Tensor, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        RegularizedLoss("std")(network(), IMAGES, labels)


@pytest.mark.parametrize(
    "objective", ["std*", "KL(rob, rnd; λ=1)", "AT(mix, rnd)", "L2(nat, Wo-3)"]
)
def test_what_stands_before_the_images_learns_from_copies_and_originals(objective: str) -> None:
    gain, model = torch.ones((), dtype=torch.float64, requires_grad=True), network()

    def total(gain: Tensor) -> Tensor:
        loss = RegularizedLoss(objective, generator=torch.Generator().manual_seed(3))
        return loss(model, IMAGES * 0.9 * gain, LABELS).total

    (slope,) = torch.autograd.grad(total(gain), gain)
    step = 1e-5
    with torch.no_grad():
        expected = (total(gain + step) - total(gain - step)) / (2 * step)
    assert float(slope) == pytest.approx(float(expected), rel=1e-5)


def test_what_goes_the_wrong_way_is_refused() -> None:
    with pytest.raises(ValueError, match="scale is -1, but must be at least 0"):
        L2(scale=-1)
    with pytest.raises(ValueError, match="scale is -1"):
        Objective.parse("L2(rob, Wo-10; scale=-1)")
    for size in (-1.0, np.inf):
        with pytest.raises(ValueError, match="sizes of a step must be at least 0"):
            replace(SpatialPGD(), step_size=(size, 1.0, 1.0))
