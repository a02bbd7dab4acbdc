"""What determines a model: the recipe of one run, or of several that are used together."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from upright.warp import Fill

if TYPE_CHECKING:
    from upright.train.recipe import Recipe

__all__ = ["Plan"]


class Plan(abc.ABC):
    """Which runs a model takes, and what is made of their networks.

    A ``Recipe``, a ``Pair`` or a ``Mean``.
    """

    @property
    @abc.abstractmethod
    def runs(self) -> tuple[Recipe, ...]:
        """The runs that have to be trained for it, the one that classifies last."""

    @abc.abstractmethod
    def with_runs(self, runs: Sequence[Recipe]) -> Plan:
        """Give the same of other runs, in the order of ``runs``."""

    @abc.abstractmethod
    def joined(self, networks: Sequence[nn.Module]) -> nn.Module:
        """Make the model of the networks of its runs, in their order."""

    @property
    @abc.abstractmethod
    def method(self) -> str:
        """How it is trained, in the paper's notation: what records and tables call it."""

    @property
    @abc.abstractmethod
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for all of it."""

    @abc.abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Give what JSON holds and ``plan_from_json`` reads."""

    @property
    @abc.abstractmethod
    def locnet_fill(self) -> Fill | None:
        """What poses uncovered while its LocNet was trained; None where it has no LocNet."""

    @property
    def is_oracle(self) -> bool:
        """Whether its model reads the attack's own pose, and is no defence."""
        return False

    @property
    def seeds_fit(self) -> bool:
        """Whether its runs have the seeds that runs of one such model have."""
        return True

    @property
    def answers(self) -> int:
        """How many answers of each of its networks make one."""
        return 1

    @property
    def main(self) -> Recipe:
        """The run that classifies: its data, network, batch, precision and seed are the plan's."""
        return self.runs[-1]

    @property
    def total_steps(self) -> int:
        """The steps of all its runs together."""
        return sum(run.steps for run in self.runs)

    def changed(self, **changes: Any) -> Plan:
        """Change fields of all its recipes."""
        return self.with_runs([replace(run, **changes) for run in self.runs])
