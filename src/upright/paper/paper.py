"""A paper as one value: what it prints, what its names mean, how it trained and what it asked.

``invariance.py`` has one. All else in this room is handed a ``Paper`` and knows none by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from upright.evaluation import Question
from upright.objective import AnyObjective, LocNet, Objective
from upright.report.headline import Headline
from upright.train import Recipe

__all__ = ["Figure", "Layout", "Method", "Paper", "spelled"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is trained, and how; of two networks, the classifier, behind a ``LocNet``."""

    objective: Objective
    model: str = Recipe.model
    network: str = ""
    """What the paper calls the network, where it does not print how deep it is."""
    locnet: LocNet | None = None
    oracle: bool = False
    """Whether it reads the attack's own pose: a two-stage STN with the paper's trick."""

    def canonical(self) -> Method:
        """Give the one that stands for all that train alike."""
        return replace(self, objective=self.objective.canonical())


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A table: methods are columns, data sets and metrics are rows.

    A table of several blocks of columns has a layout for each.
    """

    name: str
    """The paper's label."""
    part: str = ""
    """Which block, where there are several."""
    title: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    metrics: tuple[str, ...] = ("nat", "grid-775")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that is drawn from records."""

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    factors: tuple[float, ...] = (1.0,)
    """Of λ's default."""


def _no_baseline(_: Method) -> str | None:
    return None


def _no_caveat(_: Method, __: str) -> str:
    return ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paper:
    """What a paper prints, and how its numbers were made. Only what is one object is one paper."""

    numbers: str
    """Every accuracy of its tables as CSV, in its order and in percent; the columns are table,
    dataset, method, metric, mean and stderr, which may be empty."""
    datasets: Mapping[str, str]
    """The data sets, as we and as the paper spell them."""
    layouts: tuple[Layout, ...]
    figures: tuple[Figure, ...] = ()
    methods: Mapping[str, Method] = field(default_factory=dict)
    """What its names stand for that are no objectives in the notation."""

    question: Question = field(default_factory=Question)
    """What its evaluations are asked, without attacks. Recipes search the same poses."""
    training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By data set, the fields of its recipes that are not a ``Recipe``'s defaults."""
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By network, the fields of its recipes that are not those of the data set."""
    batches: tuple[int, ...] = ()
    """Methods without a penalty: the sizes of batch that they were trained with."""
    weights: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """λ other than the default, by data set and objective."""
    decisive: str = "grid-775"
    """The metric that figures need, and by which the better of several runs is chosen."""
    seeds: int = 5
    """Over how many runs its means and standard errors are."""

    cited_as: str = ""
    """Its authors and year, where one of its numbers stands beside others."""
    headline: Headline | None = None
    """What a front page shows of it."""
    command: str = ""
    """What a shell is told to make its runs, before ``--table`` and the rest; empty for nothing."""

    baseline: Callable[[Method], str | None] = _no_baseline
    """The name of the method whose error a method reduces, None where there is none."""
    misprints: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """What is wrong with numbers, by table, data set and method as printed."""
    caveat: Callable[[Method, str], str] = _no_caveat
    """How a method's number, by metric, was measured otherwise than it says; empty where not."""

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables' labels, in the order of the paper."""
        return tuple(dict.fromkeys(layout.name for layout in self.layouts))

    @property
    def figure_names(self) -> tuple[str, ...]:
        """The figures that are drawn from records."""
        return tuple(figure.name for figure in self.figures)

    def method(self, name: str) -> Method:
        """Read a name of the paper, with spaces or without.

        >>> from upright.paper import INVARIANCE
        >>> INVARIANCE.method("GRN*").model, str(INVARIANCE.method("ALP(rob,Wo-1)").objective)
        ('gresnet44', 'ALP(rob, rnd)')
        """
        return _method(self, name)

    def find_method(self, name: str) -> Method | None:
        """Read a name of the paper; None where it is none."""
        try:
            return self.method(name)
        except ValueError:
            return None

    def figure(self, name: str) -> Figure:
        """Find a figure by name."""
        self.check("figure", [name], self.figure_names)
        return next(each for each in self.figures if each.name == name)

    def recipe(self, dataset: str, objective: AnyObjective, model: str = Recipe.model) -> Recipe:
        """Say how an objective is trained on a data set; seed 0, float32."""
        self.check("data set", [dataset], self.datasets)
        asked = {name: getattr(self.question, name) for name in ("space", "interpolation", "view")}
        fields = asked | {**self.training.get(dataset, {}), **self.networks.get(model, {})}
        return Recipe(objective=objective, data=dataset, model=model, **fields)

    @property
    def on_held_out(self) -> Paper:
        """The same with runs that hold out a tenth of the training images, and are asked of it.

        It is for choosing: what the paper reports is of no such run.
        """
        return _on_held_out(self)

    def check(self, kind: str, given: Collection[str], known: Collection[str]) -> None:
        """Say what there is, of names that the paper does not have."""
        for name in given:
            if name not in known:
                raise ValueError(
                    f"the paper has no {kind} {name!r}; choose from {', '.join(known)}"
                )


@cache
def _method(paper: Paper, name: str) -> Method:
    own = {spelled(each): method for each, method in paper.methods.items()}
    return own.get(spelled(name)) or Method(objective=Objective.parse(name))


@cache
def _on_held_out(paper: Paper) -> Paper:
    training = {
        dataset: {**paper.training.get(dataset, {}), "held_out": True} for dataset in paper.datasets
    }
    question = replace(paper.question, split="held-out")
    return replace(paper, question=question, training=training)


def spelled(name: str) -> str:
    """Leave out the spaces of a name: tables have few, and nobody counts them."""
    return "".join(name.split())
