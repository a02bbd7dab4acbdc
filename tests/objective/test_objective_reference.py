"""Every objective against a slow reference in float64: values to 1e-10, gradients to 1e-8."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from objective_reference import LIMITS, Expected, Method, Wanted, draw, reference
from rigid_spaces import rigid_box
from upright.objective import LossTerms, Objective, RegularizedLoss, Target
from upright.pose import Pose
from upright.space import Space

REGULARIZERS = ("AT", "L2", "KL", "ALP", "KL-C")
BATCHES = ("nat", "rob", "mix")
DEFENCES = ("rnd", "Wo-4", "S-PGD")
ALL = list(product(REGULARIZERS, BATCHES, DEFENCES))
DEFAULT_WEIGHT = {"AT": 1.0, "L2": 1.0, "ALP": 1.0, "KL": 8.0, "KL-C": 8.0}
WANTED: dict[Target, Wanted] = {"cross-entropy": "loss", "penalty": "penalty"}

CHANNELS, HEIGHT, WIDTH, CLASSES = 2, 6, 7, 5
LABELS = [4, 0, 2, 2]


class DoubleSpace(Space):
    """The reference's box and its draws, which are in float64."""

    def sample(
        self,
        *shape: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Pose:
        assert generator is not None
        assert device is None
        return Pose(draw(generator, *shape))


SPACE = DoubleSpace(rigid_box(*LIMITS).chain)


def network() -> nn.Module:
    """Make a network with batch norm whose running statistics are far from those of any batch."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(4)
        net = nn.Sequential(
            nn.Conv2d(CHANNELS, 4, 3, padding=1),
            norm,
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * (HEIGHT // 2) * (WIDTH // 2), CLASSES),
        ).double()
        for parameter in net.parameters():
            nn.init.normal_(parameter)
        for statistic in (norm.running_mean, norm.running_var):
            assert statistic is not None
            nn.init.uniform_(statistic, 0.05, 2)
    return net


def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (len(LABELS), CHANNELS, HEIGHT, WIDTH)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def assert_same(method: Method, objective: str | Objective) -> None:
    """Compare value, parts, poses, gradients and the new running statistics."""
    slow, fast = network(), network()
    expected = reference(method, slow, images(), LABELS)
    loss = RegularizedLoss(objective, SPACE, generator=torch.Generator().manual_seed(0))
    terms = loss(fast, images(), torch.tensor(LABELS))
    assert_same_parts(terms, expected)
    terms.total.backward()
    gradients = torch.autograd.grad(expected.total, list(slow.parameters()))
    for parameter, gradient in zip(fast.parameters(), gradients, strict=True):
        assert_close(parameter.grad, gradient, 1e-8)
    for one, other in zip(fast.buffers(), slow.buffers(), strict=True):
        assert_close(one, other, 1e-10)


def assert_same_parts(terms: LossTerms, expected: Expected) -> None:
    assert_close(terms.total, expected.total, 1e-10)
    assert_close(terms.penalty, expected.penalty, 1e-10)
    assert_close(terms.natural_loss, expected.natural, 1e-10)
    assert_close(terms.transformed_loss, expected.transformed, 1e-10)
    assert {WANTED[target] for target in terms.poses} == set(expected.poses)
    for target, pose in terms.poses.items():
        assert_close(pose.values.double(), torch.stack(expected.poses[WANTED[target]]), 1e-10)


def assert_close(ours: Tensor | None, expected: Tensor | None, tolerance: float) -> None:
    assert (ours is None) == (expected is None)
    if ours is not None:
        torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("weight", [None, 0.3, 20.0])
@pytest.mark.parametrize(("name", "batch", "defence"), ALL)
def test_every_objective_is_the_papers_formula(
    name: str, batch: str, defence: str, weight: float | None
) -> None:
    method = Method(name, batch, defence, DEFAULT_WEIGHT[name] if weight is None else weight)
    assert_same(method, Objective.parse(f"{name}({batch}, {defence})", weight=weight))


@pytest.mark.parametrize(("name", "batch", "defence"), ALL)
def test_with_several_draws_each_pair_counts_alike(name: str, batch: str, defence: str) -> None:
    method = Method(name, batch, defence, 2.0, draws=2)
    assert_same(method, Objective.parse(f"{name}({batch}, {defence}×2)", weight=2))


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["KL", "KL-C"])
def test_direction_turns_the_divergence_round(name: str, batch: str, defence: str) -> None:
    method = Method(name, batch, defence, 8.0, natural_first=False)
    assert_same(method, f"{name}({batch}, {defence}; direction=transformed)")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["L2", "ALP"])
def test_scale_multiplies_the_squared_distance(name: str, batch: str) -> None:
    assert_same(Method(name, batch, "Wo-4", 1.0, scale=1.5), f"{name}({batch}, Wo-4; scale=1.5)")


@pytest.mark.parametrize("search", ["cross-entropy", "penalty"])
@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("batch", ["rob", "mix"])
@pytest.mark.parametrize("name", ["L2", "KL"])
def test_the_cross_entropy_takes_the_x_that_the_search_option_names(
    name: str, batch: str, defence: str, search: str
) -> None:
    method = Method(name, batch, defence, 3.0, shares_search=search == "penalty")
    assert_same(method, f"{name}({batch}, {defence}; λ=3, search={search})")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", REGULARIZERS)
def test_long_climbs_stay_in_the_box_and_the_best_of_them_is_taken(name: str, batch: str) -> None:
    method = Method(name, batch, "S-PGD", 2.0, steps=4, step=(0.9, 1.0, 25.0), restarts=2)
    options = "steps=4, step=0.9/1/25, restarts=2"
    assert_same(method, Objective.parse(f"{name}({batch}, S-PGD; {options})", weight=2))


@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", REGULARIZERS)
def test_any_attack_can_be_the_defence(name: str, batch: str, draws: int) -> None:
    method = Method(name, batch, "grid-2x1x3", 2.0, draws=draws)
    assert_same(method, Objective.parse(f"{name}({batch}, grid-2x1x3×{draws})", weight=2))


def test_the_reference_tells_apart_all_that_are_not_one_method() -> None:
    far = Method("", "", "", 2.0, steps=3, step=(0.5, 0.5, 10.0))
    totals = {
        (name, batch, defence): reference(
            replace(far, name=name, batch=batch, defence=defence), network(), images(), LABELS
        ).total.item()
        for name, batch, defence in ALL
    }
    for one, other in product(ALL, ALL):
        assert (totals[one] == totals[other]) == (canonical(*one) == canonical(*other))


def canonical(name: str, batch: str, defence: str) -> tuple[str, str, str]:
    """Say which method another is: AT(nat, .) moves no image, a single draw leaves no choice."""
    if (name, batch) == ("AT", "nat"):
        return name, batch, ""
    merged = {"ALP": "L2", "KL-C": "KL"}.get(name, name) if defence == "rnd" else name
    return merged, batch, defence
