"""Tables and leaderboards as data: what was measured, what the paper reports, how both compare.

Every accuracy, standard error and difference is a fraction, from 0 to 1; who shows it makes it a
percentage. A renderer needs nothing but a ``Table`` or a ``Leaderboard``: no record, no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from upright.records import Reported

__all__ = [
    "Cell",
    "Column",
    "Difference",
    "Estimate",
    "Leaderboard",
    "Reduction",
    "Row",
    "Source",
    "Spread",
    "SpreadBasis",
    "Standing",
    "Table",
    "TrainingTime",
    "Verdict",
]

NOISE = 2.0
"""Means that differ by at most so many standard errors agree, where the spread is known well."""

Verdict = Literal["agrees", "above", "short", "unjudged", "missing"]
"""``agrees``: as near to the paper as two standard errors are where the spread is known well
(``Difference.limit``), either way; ``above`` and ``short``: further above or below it, which are
both signs of another recipe; ``unjudged``: measured, but the paper has
no number to compare with; ``missing``: not measured."""


SpreadBasis = Literal["seeds", "pooled", "paper", "images"]
"""What the spread between runs was taken from: the method's own seeds; for a single seed, those of
our other methods on the same data, or else the paper's standard error; or, where there is none of
these, the number of test images."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The record that one number comes from."""

    recipe_hash: str
    seed: int
    commit: str | None
    hardware: str
    finished: str


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An accuracy over several seeds."""

    mean: float
    stderr: float | None
    """Of the mean; None for a single seed."""
    images: int
    """How many were evaluated."""
    sources: tuple[Source, ...]
    """One for each seed, in the order of the seeds."""

    @property
    def n(self) -> int:
        """How many seeds."""
        return len(self.sources)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A standard deviation between runs, as it was estimated."""

    deviation: float
    freedom: float
    """Its degrees of freedom: how many runs beyond their means it was estimated from."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A measured mean less the reported one."""

    absolute: float
    stderr: float
    """Of the difference."""
    freedom: float
    """Degrees of freedom of that (Welch and Satterthwaite)."""
    basis: SpreadBasis

    @property
    def limit(self) -> float:
        """How many standard errors agree: Student's quantile for the chance that 2 have of a normal
        distribution, 4.6 %. Of five runs, which leave 4 degrees of freedom, it is 2.9."""
        from scipy.special import ndtr, stdtrit  # which takes a tenth of a second

        known_well = 1e9  # not all versions of scipy take infinity
        return float(stdtrit(min(self.freedom, known_well), float(ndtr(NOISE))))

    @property
    def in_stderr(self) -> float:
        """The difference in standard errors."""
        return self.absolute / self.stderr


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How much of the error of a baseline is gone, as the paper defines it."""

    absolute: float
    """The error of the baseline less that of the method."""
    relative: float
    """The same, as a part of the error of the baseline."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a table."""

    measured: Estimate | None = None
    reported: Reported | None = None
    """As this table prints it; a standard error that it leaves out is that of the appendix."""
    difference: Difference | None = None
    reduction: Reduction | None = None
    """Against the column's baseline, as measured; None where either is missing."""
    reported_reduction: Reduction | None = None
    best: bool = False
    """Whether its measured mean is the highest of its row."""
    note: str = ""
    """What a reader must know about the paper's number, such as that it is a misprint."""
    above_natural: bool = False
    """Whether an attack left more than the method's natural accuracy, as it never tried images as
    they are."""
    weight: float | None = None
    """The penalty's λ, where another than the default was chosen by grid accuracy."""
    command: str = ""
    """What to type to fill it, or to fill it up with seeds; empty where nothing is missing."""

    @property
    def choice(self) -> str:
        """What was chosen for it, in words; empty where nothing was."""
        return "" if self.weight is None else f"λ = {self.weight:g}"

    @property
    def verdict(self) -> Verdict:
        if self.measured is None:
            return "missing"
        if self.difference is None:
            return "unjudged"
        if abs(self.difference.in_stderr) <= self.difference.limit:
            return "agrees"
        return "above" if self.difference.absolute > 0 else "short"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A method or a network."""

    name: str
    """As the paper spells it."""
    baseline: str | None = None
    """The method whose error its cells reduce; it may stand in another table."""
    oracle: bool = False
    """Whether it reads the attack's own pose, and is no defence."""

    @property
    def title(self) -> str:
        """Its name, marked where it is no defence."""
        return f"{self.name} (oracle)" if self.oracle else self.name


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric on one data set."""

    dataset: str
    """As the paper spells it."""
    metric: str
    """``nat``, or the attack's name."""
    cells: tuple[Cell | None, ...]
    """One for each column; None where the paper has a dash."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper, or one in its form."""

    name: str
    """The paper's label, such as ``regspat``."""
    part: str = ""
    """Which part, where the paper prints several blocks under one label."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{self.name}: {row.dataset} ({row.metric}) has {len(row.cells)} cells for "
                    f"{len(self.columns)} columns"
                )

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All that the paper has a number for, row by row."""
        return tuple(cell for row in self.rows for cell in row.cells if cell is not None)


@dataclass(frozen=True, kw_only=True)
class TrainingTime:
    """The mean over some runs."""

    seconds: float
    """Of runs side by side, the equal part that each has of their time."""
    beside: tuple[int, ...]
    """How many shared the time, themselves included, each number once: 1 is alone. Empty where
    unknown."""
    hardware: str

    @property
    def sharing(self) -> str:
        """With how many others they trained, in words."""
        if not self.beside:
            return "beside unknown"
        if self.beside == (1,):
            return "alone"
        return f"1 of {' or '.join(map(str, self.beside))} side by side"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A row of a leaderboard: a network, a method and a recipe, over all seeds."""

    networks: tuple[str, ...]
    """One, or several that are used together."""
    method: str
    recipe: tuple[str, ...] = ()
    """In words: whether it is the paper's, and what it does otherwise."""
    natural: Estimate | Reported | None
    attacked: Estimate | Reported
    """Under the board's metric, by which it is sorted; reported where it was not measured here."""
    finer: Estimate | None = None
    """Under the board's finer search."""
    seeds: int
    parameters: int | None = None
    operations: int | None = None
    """Of one image's forward pass; a multiplication and a sum are two."""
    training: TrainingTime | None = None
    source: str = ""
    """Who reports it, where it was not measured here."""
    caveat: str = ""
    """How it was measured otherwise than the board's metric says."""

    @property
    def accuracies(self) -> tuple[Estimate | Reported | None, ...]:
        """In the order in which a board shows them."""
        return self.natural, self.attacked, self.finer


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """The most robust networks that were measured on a data set, beside what others report."""

    name: str
    """The data set's."""
    title: str
    """The same, as the paper spells it."""
    metric: str
    finer: str
    """The name of a search that also looks between the poses of ``metric``."""
    rows: tuple[Standing, ...]
    """The best first."""
    measured: int
    """How many rows there are of what was measured here, of which the best are shown."""

    @property
    def total(self) -> str:
        """How many of those that were measured are shown, in words."""
        shown = sum(isinstance(row.attacked, Estimate) for row in self.rows)
        return f"{shown} of {self.measured} networks, methods and recipes that were measured."
