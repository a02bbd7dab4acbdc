"""A network that a user compiled, in a loop of one's own: as it is without, and compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cheap_compiler import Compilations, compiled_afresh
from upright import RegularizedLoss, evaluate
from upright.models import Compiled

COUNT, CLASSES, STEPS = 6, 5, 4
OBJECTIVES = ["std*", "AT(rob, Wo-4)", "KL(mix, Wo-3×2)", "L2(mix, S-PGD)", "KL(rob, refine-9+rnd)"]

# PyTorch's compiler looks at .grad of what it is given, and hides the warning from users.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    with compiled_afresh():
        yield


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES))


def channels_last() -> nn.Sequential:
    model = network()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.rand(COUNT, 3, 8, 8, generator=generator), torch.arange(COUNT) % CLASSES


def take_step(loss: RegularizedLoss, model: Any, weights: nn.Module, step: int) -> list[Tensor]:
    """Train a step; give the loss and the gradients."""
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
    total = loss(model, *batch(step)).total
    total.backward()
    found = [total.detach(), *(each.grad.clone() for each in weights.parameters())]  # type: ignore[union-attr]
    optimizer.step()
    return found


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_and_gradients_are_those_without_and_one_step_compiles_all(
    objective: str, dynamic: bool | None
) -> None:
    torch.manual_seed(1)
    losses = RegularizedLoss(objective), RegularizedLoss(objective)
    plain, inside, compiler = network(), channels_last(), Compilations()
    compiled = torch.compile(inside, backend=compiler, dynamic=dynamic)
    counts = []
    for step in range(STEPS):
        expected = take_step(losses[0], plain, plain, step)
        found = take_step(losses[1], compiled, inside, step)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        counts.append(len(compiler.sizes))
    assert counts[0] > 0
    assert set(counts) == {counts[0]}
    torch.testing.assert_close(dict(inside.named_buffers()), dict(plain.named_buffers()))


def test_under_autocast_too() -> None:
    torch.manual_seed(1)
    losses = RegularizedLoss("KL(rob, Wo-4)"), RegularizedLoss("KL(rob, Wo-4)")
    plain, inside, compiler = network(), channels_last(), Compilations()
    compiled = torch.compile(inside, backend=compiler, dynamic=False)
    for step in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16):
            expected, found = (
                loss(model, *batch(step)).total
                for loss, model in zip(losses, (plain, compiled), strict=True)
            )
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    assert len(compiler.sizes) == 2  # for the search, and for the training pass


def test_gradients_of_a_pose_compute_none_of_weights() -> None:
    """Which PyTorch's compiler would, beside those that are asked for."""
    needed: list[bool] = []

    def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if not inside.training:
            needed.append(any(isinstance(each, nn.Parameter) for each in wanting(inputs)))
        return graph.forward

    def wanting(inputs: list[Any]) -> list[Tensor]:
        return [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]

    inside = network()
    compiled: Any = torch.compile(inside, backend=compiler)
    RegularizedLoss("AT(rob, S-PGD)")(compiled, *batch(0)).total.backward()
    inside.eval()
    evaluate(compiled, batch(0), attacks=["s-pgd"])
    assert needed
    assert not any(needed)


@pytest.mark.parametrize("in_sizes", [False, True], ids=["by torch", "in two sizes"])
def test_an_evaluation_between_steps_compiles_no_step_anew(in_sizes: bool) -> None:
    loss, inside = RegularizedLoss("KL(rob, Wo-4)"), channels_last()
    compiler, aside = Compilations(), Compilations()
    compiled: Any = torch.compile(inside, backend=compiler)
    measured = Compiled(inside, batch_size=16, backend=aside) if in_sizes else compiled
    counts = []
    for step in range(STEPS):
        compiled.train()
        take_step(loss, compiled, inside, step)
        compiled.eval()
        attacks = ["grid-3x3x3", "s-pgd"]
        found = evaluate(measured, batch(step), attacks=attacks, batch_size=16)
        plain = evaluate(inside, batch(step), attacks=attacks, batch_size=16)
        for name in attacks:
            assert found.attacks[name].correct.equal(plain.attacks[name].correct)
        counts.append((len(compiler.sizes), len(aside.sizes)))
    assert counts[1:] == [counts[1]] * (STEPS - 1)
    assert counts[-1][0] <= 8
