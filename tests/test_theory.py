"""The paper's theorems on finite populations, and where their wording needs care."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from upright.theory import (
    Population,
    coin_population,
    cross_entropy,
    invariance_gap,
    invariant_minimiser,
    measure,
    mutual_information,
    natural_loss,
    natural_minimiser,
    optimality_bound,
    penalised_minimiser,
    random_population,
    robust_loss,
    robust_minimiser,
)

Table = npt.NDArray[np.float64]
KINDS = list(product((True, False), repeat=2))
SEEDS = range(5)


def draw(seed: int, *, orbit_only: bool, full: bool) -> Population:
    return random_population(
        np.random.default_rng(seed),
        points=6,
        orbits=2,
        classes=3,
        label_depends_on_orbit_only=orbit_only,
        full_support=full,
    )


def one_orbit(mass: list[float], labels: list[list[float]]) -> Population:
    return Population(np.zeros(len(mass), dtype=np.int64), np.array(mass), np.array(labels))


def hinge(scores: Table) -> Table:
    """Losses max(0, 1 - s) and max(0, 1 + s) of the labels +1 and -1."""
    return np.maximum(0.0, 1.0 - np.stack([scores, -scores], axis=1))


def probabilities(logits: Table) -> Table:
    return np.asarray(softmax(logits, axis=1))


@pytest.mark.parametrize(("orbit_only", "full"), KINDS)
def test_losses_are_the_papers_sums(orbit_only: bool, full: bool) -> None:
    population = draw(0, orbit_only=orbit_only, full=full)
    logits = np.random.default_rng(1).normal(size=(6, 3))
    natural = robust = 0.0
    for x, y in product(range(6), range(3)):
        weight = population.mass[x] * population.labels[x, y]
        orbit = [z for z in range(6) if population.orbit[z] == population.orbit[x]]
        loss = {z: math.log(sum(map(math.exp, logits[z]))) - logits[z, y] for z in orbit}
        natural += weight * loss[x]
        robust += weight * max(loss.values())
    assert natural_loss(population, cross_entropy(logits)) == pytest.approx(natural, abs=1e-12)
    assert robust_loss(population, cross_entropy(logits)) == pytest.approx(robust, abs=1e-12)


@pytest.mark.parametrize("mass", [[0.3, 0.7], [1.0, 0.0]])
def test_robust_minimiser_is_the_best_of_a_fine_grid(mass: list[float]) -> None:
    population = one_orbit(mass, [[0.9, 0.1], [0.4, 0.6]])
    found = robust_minimiser(population, np.random.default_rng(0))
    chance = mass[0] * 0.9 + mass[1] * 0.4  # of label 0
    grid = np.linspace(-4.0, 4.0, 1601)
    loss_0, loss_1 = np.log1p(np.exp(-grid)), np.log1p(np.exp(grid))
    losses = chance * np.maximum.outer(loss_0, loss_0)
    losses += (1.0 - chance) * np.maximum.outer(loss_1, loss_1)
    best = grid[list(np.unravel_index(losses.argmin(), losses.shape))]
    least = robust_loss(population, cross_entropy(found))
    assert least <= losses.min() + 1e-12
    assert losses.min() <= least + 1e-5
    np.testing.assert_allclose(found[:, 0] - found[:, 1], best, atol=0.005)


@pytest.mark.parametrize("seed", SEEDS)
def test_optimality_bound_is_never_too_small(seed: int) -> None:
    population = draw(seed, orbit_only=False, full=False)
    joint = population.orbit_joint
    entropy = -(joint * np.log(joint / joint.sum(axis=1, keepdims=True))).sum()
    generator = np.random.default_rng(seed)
    for scale in (0.01, 0.1, 1.0, 3.0):
        logits = invariant_minimiser(population) + scale * generator.normal(size=(6, 3))
        excess = robust_loss(population, cross_entropy(logits)) - entropy
        assert 0.0 < excess <= optimality_bound(population, logits)


@pytest.mark.parametrize(("orbit_only", "full"), KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_robust_minimisers_are_invariant_and_solve_o1_and_o2(
    seed: int, orbit_only: bool, full: bool
) -> None:
    population = draw(seed, orbit_only=orbit_only, full=full)
    robust = robust_minimiser(population, np.random.default_rng(seed))
    constrained = invariant_minimiser(population)
    assert optimality_bound(population, robust) < 1e-6
    assert invariance_gap(population, robust) < 1e-7
    np.testing.assert_allclose(probabilities(robust), probabilities(constrained), atol=1e-6)
    assert robust_loss(population, cross_entropy(constrained)) == pytest.approx(
        robust_loss(population, cross_entropy(robust)), abs=1e-9
    )


@pytest.mark.parametrize("loss", [natural_loss, robust_loss])
def test_invariant_minimiser_is_what_a_search_over_invariant_tables_finds(
    loss: Callable[[Population, Table], float],
) -> None:
    population = draw(0, orbit_only=False, full=True)

    def objective(flat: Table) -> float:
        return loss(population, cross_entropy(flat.reshape(2, 3)[population.orbit]))

    found = minimize(objective, np.random.default_rng(0).normal(size=6), method="BFGS", tol=1e-7)
    np.testing.assert_allclose(
        probabilities(found.x.reshape(2, 3)[population.orbit]),
        probabilities(invariant_minimiser(population)),
        atol=1e-5,
    )


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_trade_off_where_the_orbit_decides_the_label(seed: int, full: bool) -> None:
    population = draw(seed, orbit_only=True, full=full)
    robust = robust_minimiser(population, np.random.default_rng(seed))
    least = natural_loss(population, cross_entropy(natural_minimiser(population)))
    assert mutual_information(population) == pytest.approx(0.0, abs=1e-12)
    assert natural_loss(population, cross_entropy(robust)) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_trade_off_is_the_information_of_the_point_beyond_its_orbit(seed: int) -> None:
    population = draw(seed, orbit_only=False, full=True)
    robust = robust_minimiser(population, np.random.default_rng(seed))
    least = natural_loss(population, cross_entropy(natural_minimiser(population)))
    excess = natural_loss(population, cross_entropy(robust)) - least
    assert excess > 1e-3
    assert excess == pytest.approx(mutual_information(population), abs=1e-9)


def test_trade_off_worked_by_hand() -> None:
    population = coin_population(0.75)
    natural = natural_minimiser(population)
    robust = robust_minimiser(population, np.random.default_rng(0))
    ln2, ln3 = math.log(2.0), math.log(3.0)
    np.testing.assert_allclose(probabilities(robust), 0.5, atol=1e-7)
    assert natural_loss(population, cross_entropy(natural)) == pytest.approx(2 * ln2 - 0.75 * ln3)
    assert natural_loss(population, cross_entropy(robust)) == pytest.approx(ln2)
    assert robust_loss(population, cross_entropy(robust)) == pytest.approx(ln2)
    assert robust_loss(population, cross_entropy(natural)) == pytest.approx(2 * ln2)
    assert mutual_information(population) == pytest.approx(0.75 * ln3 - ln2)
    printed = measure(population, np.random.default_rng(0))
    assert printed["  natural loss above the minimum"] == pytest.approx(0.75 * ln3 - ln2)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_natural_minimisers_are_invariant_only_with_full_support(seed: int, full: bool) -> None:
    population = draw(seed, orbit_only=True, full=full)
    natural = penalised_minimiser(population, np.random.default_rng(seed), weight=0.0)
    least = natural_loss(population, cross_entropy(natural_minimiser(population)))
    assert natural_loss(population, cross_entropy(natural)) == pytest.approx(least, abs=1e-12)
    assert (invariance_gap(population, natural) < 1e-9) == full
    assert (robust_loss(population, cross_entropy(natural)) < least + 1e-9) == full


def test_penalised_minimiser_nears_o1_like_one_over_lambda() -> None:
    population = draw(0, orbit_only=False, full=False)
    target = probabilities(invariant_minimiser(population))
    generator = np.random.default_rng(0)
    tables = [penalised_minimiser(population, generator, weight=w) for w in (1000.0, 100.0)]
    near, far = (np.abs(probabilities(table) - target).max() for table in tables)
    assert near < 1e-3
    assert far / near == pytest.approx(10.0, rel=0.05)


def test_penalised_minimiser_beats_its_neighbours() -> None:
    population, weight = draw(0, orbit_only=False, full=True), 0.5

    def objective(logits: Table) -> float:
        penalty = 0.0
        for x in range(6):
            orbit = logits[population.orbit == population.orbit[x]]
            penalty += population.mass[x] * ((orbit - logits[x]) ** 2).sum(axis=1).mean()
        return natural_loss(population, cross_entropy(logits)) + weight * penalty

    generator = np.random.default_rng(0)
    found = penalised_minimiser(population, generator, weight=weight)
    for _ in range(100):
        assert objective(found) < objective(found + 1e-3 * generator.normal(size=found.shape))


@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_any_penalty_gives_o1_where_there_is_no_trade_off(weight: float) -> None:
    population = draw(0, orbit_only=True, full=True)
    found = penalised_minimiser(population, np.random.default_rng(0), weight=weight)
    np.testing.assert_allclose(
        probabilities(found), probabilities(invariant_minimiser(population)), atol=1e-9
    )


def test_logits_of_a_robust_minimiser_are_invariant_only_up_to_a_constant() -> None:
    population = coin_population(0.75)
    robust = invariant_minimiser(population)
    shifted = robust + np.array([[0.0], [5.0]])
    assert np.ptp(shifted, axis=0).max() == pytest.approx(5.0)
    assert optimality_bound(population, shifted) == pytest.approx(0.0, abs=1e-12)


def test_hinge_loss_has_robust_minimisers_that_are_not_invariant() -> None:
    population = one_orbit([0.5, 0.5], [[1.0, 0.0], [1.0, 0.0]])
    assert robust_loss(population, hinge(np.array([1.0, 2.0]))) == 0.0


def test_hinge_loss_has_natural_minimisers_that_are_not_invariant_despite_full_support() -> None:
    population = coin_population(0.5)
    least = min(natural_loss(population, hinge(np.full(2, s))) for s in np.linspace(-3, 3, 61))
    scores = np.array([-0.5, 0.5])
    assert natural_loss(population, hinge(scores)) == pytest.approx(least)
    assert robust_loss(population, hinge(scores)) == pytest.approx(least + 0.5)


@pytest.mark.parametrize("eighths", range(9))
def test_losses_of_robust_minimisers_are_invariant_whatever_the_loss(eighths: int) -> None:
    chance = eighths / 8  # dyadic, as the grid: every sum below is exact
    population = one_orbit([0.25, 0.75], [[chance, 1.0 - chance]] * 2)
    grid = np.arange(-2.0, 2.25, 0.25)
    losses = {
        pair: robust_loss(population, hinge(np.array(pair))) for pair in product(grid, repeat=2)
    }
    minimisers = [pair for pair, loss in losses.items() if loss == min(losses.values())]
    occurs = population.orbit_joint[0] > 0
    for pair in minimisers:
        at_first, at_second = hinge(np.array(pair))[:, occurs]
        np.testing.assert_array_equal(at_first, at_second)
    assert any(a != b for a, b in minimisers) == (eighths in (0, 8))


def test_constraint_stronger_than_invariance_misses_the_robust_minimum() -> None:
    # The penalty |f(x)|^2 leaves one function, f = 0, which is invariant.
    population = one_orbit([0.5, 0.5], [[0.9, 0.1]] * 2)
    only = robust_loss(population, cross_entropy(np.zeros((2, 2))))
    least = robust_loss(population, cross_entropy(invariant_minimiser(population)))
    assert only == pytest.approx(math.log(2.0))
    assert only > least + 0.3


def test_certain_labels_have_no_minimiser_among_finite_logits() -> None:
    population = one_orbit([0.5, 0.5], [[1.0, 0.0]] * 2)
    limit = invariant_minimiser(population)
    assert robust_loss(population, cross_entropy(limit)) == 0.0
    assert optimality_bound(population, limit) == 0.0
    found = robust_minimiser(population, np.random.default_rng(0))
    assert np.isfinite(found).all()
    assert 0.0 < robust_loss(population, cross_entropy(found)) < 1e-5


@pytest.mark.parametrize(
    ("orbit", "mass", "labels", "message"),
    [
        ([0, 0], [1.0], [[1.0, 0.0]], "one entry per point"),
        ([0, 0], [1.5, -0.5], [[1.0, 0.0]] * 2, "negative"),
        ([0, 0], [0.5, 0.4], [[1.0, 0.0]] * 2, "normalise"),
        ([0, 1], [1.0, 0.0], [[1.0, 0.0]] * 2, "massless"),
    ],
)
def test_population_refuses_what_is_no_distribution(
    orbit: list[int], mass: list[float], labels: list[list[float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Population(np.array(orbit), np.array(mass), np.array(labels))


def test_random_population_needs_an_orbit_with_two_points() -> None:
    with pytest.raises(ValueError, match="more points"):
        random_population(
            np.random.default_rng(0),
            points=2,
            orbits=2,
            classes=2,
            label_depends_on_orbit_only=True,
            full_support=True,
        )
