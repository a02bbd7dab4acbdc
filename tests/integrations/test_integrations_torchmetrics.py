"""The metric against ``evaluate`` on the same images, however they come."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bar_images import bars, trained_network
from every_space import SEVERAL
from rigid_spaces import rigid
from upright import Normalised, SpatialPGD, evaluate

torchmetrics = pytest.importorskip("torchmetrics")

from upright.integrations.torchmetrics import WorstCaseAccuracy  # noqa: E402

CHUNK = 512  # images; see evaluation/stream.py
DATA = bars(CHUNK + 88, seed=4)
SPACE = rigid(1, 15)
ATTACKS = ["grid-2x2x3", "wo-2", SpatialPGD(steps=1, step_size=(0.5, 0.5, 9))]

every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=str)


def expected(attack: Any, data: tuple[Tensor, Tensor] = DATA, **options: Any) -> Tensor:
    found = evaluate(trained_network(), data, attacks=[attack], space=SPACE, **options)
    return found.attacks[str(attack)].correct


def batches(size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(DATA[0].split(size), DATA[1].split(size), strict=True)


@every_attack
@pytest.mark.parametrize("size", [37, 550, 600])
def test_it_is_what_evaluate_gives_whatever_the_batches(attack: Any, size: int) -> None:
    worst = WorstCaseAccuracy(trained_network(), attack, space=SPACE)
    for images, labels in batches(size):
        worst.update(images, labels)
    assert (worst.correct, worst.total) == (expected(attack).sum(), len(DATA[0]))
    assert worst.compute() == expected(attack).float().mean()


@pytest.mark.parametrize("part", ["limit", "sample", "minutes"])
def test_a_part_of_each_batch_is_no_question(part: str) -> None:
    with pytest.raises(ValueError, match=f"leave out {part}"):
        WorstCaseAccuracy(trained_network(), **{part: 5})


@pytest.mark.parametrize("text", SEVERAL)
@pytest.mark.parametrize("view", [None, 6])
def test_any_families_and_views_are_what_evaluate_takes(text: str, view: int | None) -> None:
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 4)).double()
    for attack in ("wo-2", "s-pgd"):
        worst = WorstCaseAccuracy(model, attack, space=text, view=view)
        for images, labels in batches(550):
            worst.update(images, labels)
        found = evaluate(model.eval(), DATA, attacks=[attack], space=text, view=view)
        assert worst.correct == found.attacks[attack].correct.sum()


@every_attack
def test_forward_gives_the_accuracy_of_each_batch_at_its_own_place(attack: Any) -> None:
    worst = WorstCaseAccuracy(trained_network(), attack, space=SPACE)
    given = torch.stack([worst(images, labels) for images, labels in batches(300)])
    assert torch.equal(given, torch.stack([e.float().mean() for e in expected(attack).split(300)]))
    assert worst.compute() == expected(attack).float().mean()


def test_after_a_reset_it_measures_the_same_again() -> None:
    worst = WorstCaseAccuracy(trained_network(), "wo-2", space=SPACE)
    found = []
    for _ in range(2):
        worst.update(DATA[0][:100], DATA[1][:100])
        found.append(worst.compute())
        worst.reset()
    assert found[0] == found[1] == expected("wo-2")[:100].float().mean()


def test_a_generator_draws_what_it_draws_for_evaluate() -> None:
    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    worst = WorstCaseAccuracy(trained_network(), "wo-2", space=SPACE, generator=generator())
    for images, labels in batches(100):
        worst.update(images, labels)
    assert worst.correct == expected("wo-2", generator=generator()).sum()
    assert worst.correct != expected("wo-2").sum()


def test_normalised_images_give_the_same() -> None:
    mean, std = [0.4, 0.2], [0.3, 0.25]
    inverse = Normalised(trained_network(), [-4 / 3, -0.8], [1 / 0.3, 4])
    worst = WorstCaseAccuracy(inverse, "wo-2", space=SPACE, mean=mean, std=std)
    images = (DATA[0] - torch.tensor(mean).view(1, 2, 1, 1)) / torch.tensor(std).view(1, 2, 1, 1)
    worst.update(images, DATA[1])
    assert worst.correct == expected("wo-2").sum()


@every_attack
def test_it_works_in_a_validation_step_and_leaves_no_trace(attack: Any) -> None:
    """Lightning validates in inference mode; a loop of one's own may be in training mode."""
    network = copy.deepcopy(trained_network())
    network[1] = nn.Sequential(nn.BatchNorm2d(8).double(), nn.ReLU())
    network.train()
    network[0].eval()  # one's own part is frozen
    modes = [part.training for part in network.modules()]
    before, random = copy.deepcopy(network.state_dict()), torch.random.get_rng_state()
    worst = WorstCaseAccuracy(network, attack, space=SPACE)
    with torch.inference_mode():
        worst.update(DATA[0][:20] * 1, DATA[1][:20] * 1)
        inside = worst.compute().clone()
    assert [part.training for part in network.modules()] == modes
    assert all(torch.equal(now, before[name]) for name, now in network.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in network.parameters())
    assert torch.equal(torch.random.get_rng_state(), random)
    network.eval()
    few = DATA[0][:20], DATA[1][:20]
    found = evaluate(network, few, attacks=[attack], space=SPACE).attacks[str(attack)]
    assert inside == found.correct.float().mean()


@pytest.mark.parametrize("precision", ["half", "autocast"])
def test_half_precision(precision: str) -> None:
    """The states count images, whatever the precision of the metric and of the model."""
    network = copy.deepcopy(trained_network()).float()
    worst = WorstCaseAccuracy(network, "grid-2x2x3", space=SPACE)
    worst = worst.half() if precision == "half" else worst
    images, labels = DATA[0].float(), DATA[1]
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        worst.update(images, labels)
        found = evaluate(network, (images, labels), attacks=["grid-2x2x3"], space=SPACE)
    assert worst.correct == found.attacks["grid-2x2x3"].correct.sum()
    assert worst.total == len(images)


def test_the_model_is_no_part_of_the_metric() -> None:
    module = nn.Module()
    module.network = copy.deepcopy(trained_network())
    names = set(module.state_dict())
    module.worst = WorstCaseAccuracy(module.network)
    module.itself = WorstCaseAccuracy(module)  # type: ignore[arg-type]  # a module knows itself
    assert set(module.state_dict()) == names
    assert not list(module.worst.parameters())


def test_a_clone_asks_the_same_model_and_a_copied_module_its_copy() -> None:
    module = nn.Module()
    module.network = copy.deepcopy(trained_network())
    module.worst = WorstCaseAccuracy(module.network)
    assert module.worst.clone().model is module.network
    copied = copy.deepcopy(module)
    assert copied.worst.model is copied.network
    assert copied.network is not module.network


def test_a_pickled_metric_continues() -> None:
    worst = WorstCaseAccuracy(trained_network(), "wo-2", space=SPACE)
    first, second, *_ = batches(300)
    worst.update(*first)
    again = pickle.loads(pickle.dumps(worst))
    again.update(*second)
    assert again.correct == expected("wo-2").sum()


def test_a_collection_measures_each_metric_by_itself() -> None:
    """torchmetrics takes metrics whose states are equal after the first batch for one."""
    network = trained_network()
    wide, narrow = rigid(1, 90), rigid(0, 0)
    together = torchmetrics.MetricCollection(
        {
            "wide": WorstCaseAccuracy(network, "grid-3x3x7", space=wide),
            "narrow": WorstCaseAccuracy(network, "grid-3x3x7", space=narrow),
            "never": WorstCaseAccuracy(lambda images: -network(images), "rnd", space=narrow),
            "rnd": WorstCaseAccuracy(network, "rnd", space=narrow),
        }
    )
    fooled = ~evaluate(network, DATA, attacks=["grid-3x3x7"], space=narrow).natural_correct
    for rows in (fooled, ~fooled):  # first a batch on which they agree
        together.update(DATA[0][rows][:10], DATA[1][rows][:10])
    found = {name: round(value.item(), 2) for name, value in together.compute().items()}
    assert found["narrow"] == found["rnd"] == 0.5
    assert found["wide"] < 0.5


def test_what_cannot_be_right_is_said_at_once() -> None:
    network = trained_network()
    with pytest.raises(ValueError, match="no attack is called 'wo'"):
        WorstCaseAccuracy(network, "wo")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        WorstCaseAccuracy(network, colour="pink")
    with pytest.raises(ValueError, match="mean and std belong together"):
        WorstCaseAccuracy(network, mean=[0.5, 0.5])


def test_an_empty_batch_counts_nothing() -> None:
    worst = WorstCaseAccuracy(trained_network(), "wo-2", space=SPACE)
    worst.update(DATA[0][:0], DATA[1][:0])
    worst.update(*DATA)
    assert worst.correct == expected("wo-2").sum()


def test_processes_sum_what_they_measured() -> None:
    """Every second image on each, as a DistributedSampler gives them."""
    attack = "grid-2x2x3"
    other = WorstCaseAccuracy(trained_network(), attack, space=SPACE)
    other.update(DATA[0][1::2], DATA[1][1::2])
    theirs = iter([other.question, other.correct, other.total])
    sync = {
        "distributed_available_fn": lambda: True,
        "dist_sync_fn": lambda mine, group: [mine, next(theirs)],  # noqa: ARG005
    }
    worst = WorstCaseAccuracy(trained_network(), attack, space=SPACE, sync=sync)
    worst.update(DATA[0][::2], DATA[1][::2])
    assert worst.compute() == expected(attack).float().mean()


def test_without_torchmetrics_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "upright.integrations.torchmetrics")
    with pytest.raises(ImportError, match="install the extra 'torchmetrics'"):
        importlib.import_module("upright.integrations.torchmetrics")
