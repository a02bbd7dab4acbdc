"""The paper's two theorems on finite populations, where every loss and minimiser can be computed.

Inputs are the points 0..n-1, orbits (the paper's transformation sets) partition them, and a
function is a table of logits with one row per point, so every invariant function is in the class.
`python -m upright.theory` measures both theorems on random populations; docs/theory.md reads them.

Entry (x, y) of a table of losses is the loss at point x when the label is y, in nats. Predictions
are compared as softmaxes, because adding a constant to a row of logits changes no loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag
from scipy.optimize import NonlinearConstraint, minimize
from scipy.special import log_softmax, rel_entr, softmax

__all__ = [
    "Population",
    "coin_population",
    "cross_entropy",
    "invariance_gap",
    "invariant_minimiser",
    "measure",
    "mutual_information",
    "natural_loss",
    "natural_minimiser",
    "optimality_bound",
    "penalised_minimiser",
    "random_population",
    "robust_loss",
    "robust_minimiser",
]

Table = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Population:
    """A joint distribution of (X, Y) on finitely many points, and the orbit of each point.

    A point may have no mass: it is never drawn, yet the supremum over its orbit still visits it.
    """

    orbit: npt.NDArray[np.int64]  # [points], numbered 0, 1, ...
    mass: Table  # [points], P(x)
    labels: Table  # [points, classes], P(y | x)

    def __post_init__(self) -> None:
        points = len(self.orbit)
        if self.mass.shape != (points,) or self.labels.shape[:-1] != (points,):
            raise ValueError("orbit, mass and labels differ in length: give one entry per point")
        if min(self.mass.min(), self.labels.min()) < 0:
            raise ValueError("a probability is negative: give P(x) and P(y | x)")
        if not np.allclose([self.mass.sum(), *self.labels.sum(axis=1)], 1):
            raise ValueError("mass or a row of labels does not sum to 1: normalise it")
        if not (np.bincount(self.orbit, weights=self.mass) > 0).all():
            raise ValueError(
                "an orbit is empty or massless: number them 0, 1, ... and leave it out"
            )

    @property
    def joint(self) -> Table:
        """P(x, y), [points, classes]."""
        return self.mass[:, None] * self.labels

    @property
    def members(self) -> npt.NDArray[np.bool_]:
        """Entry (u, x) says whether point x lies in orbit u, [orbits, points]."""
        return np.equal.outer(np.arange(self.orbit.max() + 1), self.orbit)

    @property
    def orbit_joint(self) -> Table:
        """P(orbit, y), [orbits, classes]."""
        return self.members @ self.joint


def random_population(
    generator: np.random.Generator,
    points: int,
    orbits: int,
    classes: int,
    *,
    label_depends_on_orbit_only: bool,
    full_support: bool,
) -> Population:
    """Draw a population; without full support every other point beyond one an orbit is massless."""
    if points <= orbits:
        raise ValueError(f"{points} points leave {orbits} orbits with one each: give more points")
    orbit = np.append(np.arange(orbits), generator.integers(orbits, size=points - orbits))
    mass = generator.uniform(0.1, 1.0, size=points)
    if not full_support:
        mass[orbits::2] = 0.0
    labels = generator.dirichlet(np.ones(classes), size=points)
    if label_depends_on_orbit_only:
        labels = labels[orbit]
    return Population(orbit, mass / mass.sum(), labels)


def coin_population(chance: float) -> Population:
    """One orbit, two equally likely points: label 0 has this chance at one, 1 - it at the other."""
    labels = np.array([[chance, 1.0 - chance], [1.0 - chance, chance]])
    return Population(np.zeros(2, dtype=np.int64), np.full(2, 0.5), labels)


def cross_entropy(logits: Table) -> Table:
    """Losses -log softmax(logits)[y]."""
    return -np.asarray(log_softmax(logits, axis=1))


def natural_loss(population: Population, losses: Table) -> float:
    """E loss(X, Y)."""
    return _expected(population.joint, losses)


def robust_loss(population: Population, losses: Table) -> float:
    """E sup of loss(x', Y) over x' in the orbit of X, massless points included."""
    return _expected(population.orbit_joint, _over_orbits(population, losses, np.max))


def _over_orbits(population: Population, table: Table, reduce: Callable[..., Table]) -> Table:
    """Reduce the rows of each orbit to one, [orbits, classes]."""
    return np.stack([reduce(table[inside], axis=0) for inside in population.members])


def _expected(joint: Table, losses: Table) -> float:
    # An infinite loss on a label that never occurs costs nothing.
    return float(np.multiply(joint, losses, out=np.zeros_like(joint), where=joint > 0).sum())


def _softmax(logits: Table) -> Table:
    return np.asarray(softmax(logits, axis=1))


def invariance_gap(population: Population, logits: Table) -> float:
    """Largest difference of a predicted probability between two points of one orbit."""
    return float(_over_orbits(population, _softmax(logits), np.ptp).max())


def mutual_information(population: Population) -> float:
    """I(X; Y | orbit): what a point tells about its label that its orbit does not."""
    per_orbit = population.orbit_joint / population.orbit_joint.sum(axis=1, keepdims=True)
    independent = population.mass[:, None] * per_orbit[population.orbit]
    return float(rel_entr(population.joint, independent).sum())


def natural_minimiser(population: Population) -> Table:
    """Logits log P(y | x); rows of massless points are free, and `labels` decides them here."""
    with np.errstate(divide="ignore"):
        return np.log(population.labels)


def invariant_minimiser(population: Population) -> Table:
    """The solution of O1 and of O2: logits log P(y | orbit) at every point.

    On invariant functions the natural and the robust loss are the same sum, so one formula serves.
    """
    joint = population.orbit_joint
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(joint / joint.sum(axis=1, keepdims=True))[population.orbit])


def robust_minimiser(
    population: Population, generator: np.random.Generator, *, tolerance: float = 1e-5
) -> Table:
    """Minimise the robust cross-entropy over all tables of logits, from a random table.

    In epigraph form: minimise sum P(u, y) t[u, y] over logits and ceilings t, where t[u, y] is at
    least the loss of y at every point of orbit u. It is convex, and nothing asks for invariance.

    Raises:
        RuntimeError: `optimality_bound` of the table found exceeds the tolerance.
    """
    shape = points, classes = population.labels.shape
    cut = points * classes
    ceilings = np.kron(population.members.T, np.eye(classes))
    weights = np.append(np.zeros(cut), population.orbit_joint)

    def expected_ceiling(variables: Table) -> tuple[float, Table]:
        return float(weights @ variables), weights

    def slack(variables: Table) -> Table:
        losses = cross_entropy(variables[:cut].reshape(shape))
        return np.asarray(ceilings @ variables[cut:] - losses.ravel())

    def slack_jacobian(variables: Table) -> Table:
        rows = _softmax(variables[:cut].reshape(shape))
        return np.hstack([block_diag(*(np.eye(classes) - row for row in rows)), ceilings])

    start = generator.normal(size=shape)
    found = minimize(
        expected_ceiling,
        np.append(start, _over_orbits(population, cross_entropy(start), np.max)),
        jac=True,
        method="SLSQP",
        constraints=NonlinearConstraint(slack, 0.0, np.inf, jac=slack_jacobian),
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    logits: Table = found.x[:cut].reshape(shape)
    # The solver's own status is no judge: at full precision a line search may fail harmlessly.
    if not (bound := optimality_bound(population, logits)) <= tolerance:
        raise RuntimeError(f"up to {bound:.1e} above the minimum: try another seed")
    return logits


def optimality_bound(population: Population, logits: Table) -> float:
    """An upper bound on the robust cross-entropy of a table minus the minimum over all tables.

    With m[u, y] the least probability of y in orbit u, the loss is -sum P(u, y) log m[u, y]: convex
    in m. The m of any table sum to at most 1 in each orbit, so the tangent at this table's m falls
    by at most max_y P(u, y) / m[u, y] - P(u) in orbit u.
    """
    joint = population.orbit_joint
    least = _over_orbits(population, _softmax(logits), np.min)
    ratio = np.divide(joint, least, out=np.zeros_like(joint), where=joint > 0)
    return float((ratio.max(axis=1) - joint.sum(axis=1)).sum())


def penalised_minimiser(
    population: Population, generator: np.random.Generator, *, weight: float
) -> Table:
    """Minimise natural cross-entropy + weight * E mean of |f(X) - f(x')|^2 over the orbit of X.

    The mean (the paper's Reg-DA) is zero for the same functions as the supremum, and smooth, which
    suits Newton's method. Rows that no term sees keep their random start. Weight 0: natural loss.
    """
    joint, mass, members = population.joint, population.mass, population.members
    pairs = (members.T / members.sum(axis=1)) @ members * (mass[:, None] + mass)
    laplacian = weight * (np.diag(pairs.sum(axis=1)) - pairs)

    def gradient(logits: Table) -> Table:
        return np.asarray(mass[:, None] * _softmax(logits) - joint + 2 * laplacian @ logits)

    def curvature(logits: Table) -> Table:
        rows = zip(mass, _softmax(logits), strict=True)
        blocks = block_diag(*(p_x * (np.diag(row) - np.outer(row, row)) for p_x, row in rows))
        return np.asarray(blocks + 2 * np.kron(laplacian, np.eye(joint.shape[1])))

    logits = generator.normal(size=joint.shape)
    for _ in range(200):
        pull = gradient(logits)
        if (length := float(np.linalg.norm(pull))) <= 1e-13 * (1.0 + weight):
            return logits
        # Constants added to a row have no curvature: the damping makes the system regular, and
        # keeps the convergence quadratic because it vanishes with the gradient.
        damped = curvature(logits) + 0.1 * min(length, 1.0) * np.eye(pull.size)
        step = -np.linalg.solve(damped, pull.ravel()).reshape(pull.shape)
        # Slopes, not losses, tell of overshooting: near the minimum losses are equal to rounding.
        while (gradient(logits + step) * step).sum() > 0.5 * abs((pull * step).sum()):
            step = step / 2.0
        logits = logits + step
    raise RuntimeError(f"a gradient of {length:.1e} is left: try another seed")


def measure(population: Population, generator: np.random.Generator) -> dict[str, float]:
    """Find the minimisers of one population from random starts and compare them, row by row."""
    robust, constrained = robust_minimiser(population, generator), invariant_minimiser(population)
    natural = penalised_minimiser(population, generator, weight=0.0)
    penalised = penalised_minimiser(population, generator, weight=1000.0)
    losses = cross_entropy(robust)
    attained = robust_loss(population, cross_entropy(constrained)) - robust_loss(population, losses)
    least = natural_loss(population, cross_entropy(natural_minimiser(population)))
    excess = natural_loss(population, losses) - least
    difference = np.abs(_softmax(penalised) - _softmax(constrained))
    return {
        "robust minimiser: invariance gap": invariance_gap(population, robust),
        "  robust loss above the minimum, at most": optimality_bound(population, robust),
        "  natural loss above the minimum": excess,
        "  the same, off I(X; Y | orbit) by": abs(excess - mutual_information(population)),
        "O1, O2: robust loss off the minimum by": abs(attained),
        "natural minimiser: invariance gap": invariance_gap(population, natural),
        "penalised, λ = 1000: prediction off O1's by": float(difference.max()),
    }


def _print_kind(count: int, generator: np.random.Generator, orbit_only: bool, full: bool) -> None:
    kind = {"label_depends_on_orbit_only": orbit_only, "full_support": full}
    measured = []
    for _ in range(count):
        orbits, classes = generator.integers([1, 2], [4, 5]).tolist()
        points = int(generator.integers(orbits + 1, 9))
        population = random_population(generator, points, orbits, classes, **kind)
        measured.append(measure(population, generator))
    labels, support = "⟂" if orbit_only else "depends on", "full" if full else "not full"
    print(f"Y {labels} X given the orbit, support {support}: smallest and largest of {count}")
    for row in measured[0]:
        values = [each[row] for each in measured]
        print(f"  {row:<46}{min(values):>10.1e}{max(values):>10.1e}")


if __name__ == "__main__":
    for seed, (orbit_only, full) in enumerate(product((True, False), repeat=2)):
        _print_kind(50, np.random.default_rng(seed), orbit_only, full)
    print("One orbit of two points, label 0 with chance 3/4 and 1/4:")
    for row, value in measure(coin_population(0.75), np.random.default_rng(0)).items():
        print(f"  {row:<46}{value:>20.6f}")
