"""A step of training: against the update rule written out by hand, and what it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tiny_runs import Mishaps, colours, fail, newest, tiny_recipe
from upright.models import network
from upright.train import Recipe, RunDirectory, train
from upright.train.learner import seeding_on

PIXELS = 3 * 8 * 8


pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


class Scaled(nn.Module):
    """logits = gain * (weight @ pixels) + bias in float64: one weight that decays, two that do not.

    ``seen`` and ``fixed`` do not learn; the one counts images, the other is frozen.
    """

    def __init__(self) -> None:
        super().__init__()
        weight = np.random.default_rng(0).normal(size=(3, PIXELS)) / PIXELS
        self.weight = nn.Parameter(torch.from_numpy(weight))
        self.gain = nn.Parameter(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
        self.bias = nn.Parameter(torch.tensor([0.1, 0.0, -0.1], dtype=torch.float64))
        self.fixed = nn.Parameter(torch.ones(2, 2), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return self.gain * (images.flatten(1).double() @ self.weight.T) + self.bias


Arrays = dict[str, np.ndarray]


def gradients_of(values: Arrays, x: np.ndarray, y: np.ndarray, decay: float) -> Arrays:
    """Gradients of the mean cross-entropy of ``Scaled``, with the decay of its weight."""
    weight, gain, bias = (values[name] for name in ("weight", "gain", "bias"))
    inner = x @ weight.T
    logits = gain * inner + bias
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    slope = (exponentials / exponentials.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
    return {
        "weight": (slope * gain).T @ x + decay * weight,
        "gain": (slope * inner).sum(0),
        "bias": slope.sum(0),
    }


@dataclass
class ByHand:
    """SGD with momentum on the mean cross-entropy of ``Scaled``, in numpy, gradients by hand."""

    values: dict[str, np.ndarray]
    momentum: dict[str, np.ndarray]

    def step(self, x: np.ndarray, y: np.ndarray, *, rate: float, recipe: Recipe) -> None:
        for name, gradient in gradients_of(self.values, x, y, recipe.weight_decay).items():
            self.momentum[name] = recipe.momentum * self.momentum[name] + gradient
            self.values[name] = self.values[name] - rate * self.momentum[name]


KEPT_BY_ADAM = ("model", "momentum", "square", "largest_square", "steps")


@dataclass
class AdamByHand:
    """Adam with the largest square so far (Reddi et al. 2018), as PyTorch's manual has it."""

    values: Arrays
    first: Arrays
    second: Arrays
    largest: Arrays
    steps: int = 0

    @staticmethod
    def start() -> AdamByHand:
        parameters = dict(Scaled().named_parameters())
        values = {name: parameters[name].detach().numpy() for name in ("weight", "gain", "bias")}
        zeros = {name: np.zeros_like(value) for name, value in values.items()}
        return AdamByHand(values, dict(zeros), dict(zeros), dict(zeros))

    def step(self, x: np.ndarray, y: np.ndarray, *, rate: float, recipe: Recipe) -> None:
        self.steps += 1
        for name, gradient in gradients_of(self.values, x, y, recipe.weight_decay).items():
            kept = recipe.momentum
            self.first[name] = kept * self.first[name] + (1 - kept) * gradient
            self.second[name] = 0.999 * self.second[name] + 0.001 * gradient**2
            self.largest[name] = np.maximum(self.largest[name], self.second[name])
            mean = self.first[name] / (1 - kept**self.steps)
            size = np.sqrt(self.largest[name] / (1 - 0.999**self.steps)) + 1e-8
            self.values[name] = self.values[name] - rate * mean / size


def test_sgd_with_momentum_decays_weights_and_neither_gains_nor_biases(tmp_path: Path) -> None:
    network("scaled", "scaled")(lambda **_: Scaled())
    data = colours()
    recipe = tiny_recipe(
        model="scaled",
        objective="std",
        batch=len(data),  # all images in each step: their order does not matter
        max_shift=0,
        flips=False,
        steps=4,
        learning_rate=0.5,
        weight_decay=0.1,
        momentum=0.75,
    )
    train(recipe, tmp_path, data=data, checkpoint_every=1)
    start = {name: value.detach().numpy() for name, value in Scaled().named_parameters()}
    hand = ByHand(
        {name: start[name] for name in ("weight", "gain", "bias")},
        {name: np.zeros_like(start[name]) for name in ("weight", "gain", "bias")},
    )
    x = data.images.numpy().reshape(len(data), PIXELS) / 255
    for rate in (0.5, 0.5, 0.05, 0.005):  # divided by 10 after half and three quarters of 4 steps
        hand.step(x, data.labels.numpy(), rate=rate, recipe=recipe)
    checkpoint = RunDirectory.open(tmp_path).load()
    assert checkpoint is not None
    assert checkpoint.step == 4
    # Images and the learning rate are float32, hence not closer.
    for name in ("weight", "gain", "bias"):
        found, momentum = (checkpoint.tensors[f"{kind}/{name}"] for kind in ("model", "momentum"))
        np.testing.assert_allclose(found, hand.values[name], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(momentum, hand.momentum[name], rtol=1e-6, atol=1e-8)
        assert not np.allclose(found, start[name], rtol=1e-2)
    assert checkpoint.tensors["model/fixed"].equal(torch.ones(2, 2))
    assert checkpoint.tensors["model/seen"] == 4 * len(data)


def test_adam_keeps_the_largest_square_and_decays_only_weights(tmp_path: Path) -> None:
    network("scaled", "scaled")(lambda **_: Scaled())
    data = colours()
    recipe = tiny_recipe(
        model="scaled",
        objective="std",
        batch=len(data),
        max_shift=0,
        flips=False,
        steps=4,
        learning_rate=0.1,
        weight_decay=0.1,
        momentum=0.75,
        optimizer="adam",
    )
    train(recipe, tmp_path, data=data)
    hand = AdamByHand.start()
    x = data.images.numpy().reshape(len(data), PIXELS) / 255
    for rate in (0.1, 0.1, 0.01, 0.001):
        hand.step(x, data.labels.numpy(), rate=rate, recipe=recipe)
    checkpoint = RunDirectory.open(tmp_path).load()
    assert checkpoint is not None
    for name in ("weight", "gain", "bias"):
        found = {kind: checkpoint.tensors[f"{kind}/{name}"] for kind in KEPT_BY_ADAM}
        np.testing.assert_allclose(found["model"], hand.values[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found["momentum"], hand.first[name], rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(found["square"], hand.second[name], rtol=1e-5, atol=1e-10)
        np.testing.assert_allclose(found["largest_square"], hand.largest[name], rtol=1e-5)
        assert found["steps"] == 4


def test_equal_recipes_give_equal_weights_whatever_was_drawn_before(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("other", 2)):
        torch.manual_seed(seed)
        train(tiny_recipe(model="tiny-dropout"), tmp_path / name, data=colours())
    assert newest(tmp_path / "one") == newest(tmp_path / "other")


def test_the_state_of_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    train(tiny_recipe(model="tiny-dropout"), tmp_path, data=colours())
    assert torch.get_rng_state().equal(before)


def test_a_network_draws_what_it_draws_after_a_seed_for_all_devices() -> None:
    with torch.random.fork_rng():
        seed_network = seeding_on(torch.device("cpu"))
        seed_network(2**55 + 7)
        found = torch.rand(9)
        torch.manual_seed(2**55 + 7)
        assert torch.rand(9).equal(found)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"momentum": 0.8},
        {"weight_decay": 0.0},
        {"drops": ()},
        {"decay": 0.5},
        {"optimizer": "adam"},
        {"flips": False},
        {"max_shift": 1},
        {"objective": "KL(rob, Wo-3)"},
    ],
)
def test_each_choice_of_the_recipe_reaches_the_weights(
    tmp_path: Path, change: dict[str, object]
) -> None:
    train(tiny_recipe(steps=5), tmp_path / "one", data=colours())
    train(tiny_recipe(steps=5, **change), tmp_path / "other", data=colours())
    assert newest(tmp_path / "one") != newest(tmp_path / "other")


@pytest.mark.parametrize(
    ("precision", "inside"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_only_the_inside_of_the_network_is_in_half_precision(
    tmp_path: Path, precision: str, inside: torch.dtype
) -> None:
    kinds: dict[str, torch.dtype] = {}

    class NotingModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(PIXELS, 3)

        def forward(self, images: Tensor) -> Tensor:
            kinds["images"] = images.dtype
            logits: Tensor = self.linear(images.flatten(1))
            kinds["logits"] = logits.dtype
            return logits

    network("witness", "witness")(lambda **_: NotingModel())
    recipe = tiny_recipe(model="witness", precision=precision, steps=2)
    run = train(recipe, tmp_path, data=colours())
    assert kinds == {"images": torch.float32, "logits": inside}
    checkpoint = RunDirectory.open(tmp_path).load()
    assert checkpoint is not None
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {torch.float32}
    assert not run.model.training


def test_adam_resumes_where_the_unbroken_run_ends(tmp_path: Path, mishaps: Mishaps) -> None:
    recipe = tiny_recipe(optimizer="adam", learning_rate=0.01)
    train(recipe, tmp_path / "unbroken", data=colours())
    mishaps[8] = fail
    with pytest.raises(ZeroDivisionError):
        train(recipe, tmp_path / "broken", data=colours(), checkpoint_every=3)
    mishaps.clear()
    train(recipe, tmp_path / "broken", data=colours(), resume=True)
    assert newest(tmp_path / "broken") == newest(tmp_path / "unbroken")
