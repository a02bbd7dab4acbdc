"""What determines two networks together: the paper's STN+, a LocNet before a classifier.

A record of such a pair has this in place of a recipe. So nothing that looks for a network's own
records can take it for one of the classifier's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from upright.evaluation import Oracle
from upright.train.plan import Plan
from upright.train.recipe import Recipe
from upright.train.two_stage import StnPlus, make_locator
from upright.warp import Fill

__all__ = ["Pair"]


@dataclass(frozen=True, kw_only=True)
class Pair(Plan):
    """A LocNet and a classifier, and whether they are the defence or the oracle.

    In the words of the paper, naive or trick.
    """

    locnet: Recipe
    classifier: Recipe
    oracle: bool

    def __post_init__(self) -> None:
        if not self.locnet.is_locnet:
            raise ValueError(f"{self.locnet.method} finds no poses; a LocNet has to come first")
        if self.classifier.is_locnet:
            raise ValueError(f"{self.classifier.method} finds no classes; name a classifier")
        if self.locnet.sizes != self.classifier.sizes:
            raise ValueError(
                "the LocNet and the classifier need images of one size: train both with the same "
                "--resize, --center-crop and --view"
            )
        if not isinstance(self.oracle, bool):
            raise ValueError(f"oracle is {self.oracle!r}, but must be true or false")

    @property
    def runs(self) -> tuple[Recipe, ...]:
        return self.locnet, self.classifier

    def with_runs(self, runs: Sequence[Recipe]) -> Pair:
        locnet, classifier = runs
        return replace(self, locnet=locnet, classifier=classifier)

    def joined(self, networks: Sequence[nn.Module]) -> nn.Module:
        """Put the LocNet before the classifier, or let the oracle have both."""
        found, classifier = networks
        locator = make_locator(self.locnet, found)
        if self.oracle:
            return Oracle(locator, classifier)
        return StnPlus(locator, classifier, locator.fill)

    @property
    def method(self) -> str:
        name = f"STN+({self.locnet.method}, {self.classifier.method})"
        return f"{name} oracle" if self.oracle else name

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for both recipes, and for what they are used."""
        text = f"{self.locnet.hash} {self.classifier.hash} {self.oracle}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def as_json(self) -> dict[str, Any]:
        recipes = {"locnet": self.locnet.as_json(), "classifier": self.classifier.as_json()}
        return recipes | {"oracle": self.oracle}

    @property
    def locnet_fill(self) -> Fill | None:
        return self.locnet.locnet_fill

    @property
    def is_oracle(self) -> bool:
        return self.oracle

    @property
    def seeds_fit(self) -> bool:
        return self.locnet.seed == self.classifier.seed
