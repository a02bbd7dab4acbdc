"""What determines two networks together: the paper's STN+, a LocNet before a classifier.

A record of such a pair has this in place of a recipe. So nothing that looks for a network's own
records can take it for one of the classifier's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from upright.objective import LocNet
from upright.train.recipe import Recipe
from upright.warp import Fill

__all__ = ["Pair", "attack_fill", "changed", "recipe_from_json", "runs_of"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A LocNet and a classifier, and whether they are the defence or the oracle.

    In the words of the paper, naive or trick. What it shares with a recipe is the classifier's.
    """

    locnet: Recipe
    classifier: Recipe
    oracle: bool

    def __post_init__(self) -> None:
        if not self.locnet.is_locnet:
            raise ValueError(f"{self.locnet.objective} finds no poses; a LocNet has to come first")
        if self.classifier.is_locnet:
            raise ValueError(f"{self.classifier.objective} finds no classes; name a classifier")
        if not isinstance(self.oracle, bool):
            raise ValueError(f"oracle is {self.oracle!r}, but must be true or false")

    @property
    def objective(self) -> str:
        name = f"STN+({self.locnet.objective}, {self.classifier.objective})"
        return f"{name} oracle" if self.oracle else name

    @property
    def data(self) -> str:
        return self.classifier.data

    @property
    def model(self) -> str:
        return self.classifier.model

    @property
    def batch(self) -> int:
        return self.classifier.batch

    @property
    def seed(self) -> int:
        return self.classifier.seed

    @property
    def precision(self) -> str:
        return self.classifier.precision

    @property
    def steps(self) -> int:
        """Of both."""
        return self.locnet.steps + self.classifier.steps

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for both recipes, and for what they are used."""
        text = f"{self.locnet.hash} {self.classifier.hash} {self.oracle}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def as_json(self) -> dict[str, Any]:
        """Give what JSON holds and ``recipe_from_json`` reads."""
        recipes = {"locnet": self.locnet.as_json(), "classifier": self.classifier.as_json()}
        return recipes | {"oracle": self.oracle}


def recipe_from_json(values: dict[str, Any]) -> Recipe | Pair:
    """Read what a record has as its recipe; ``ValueError`` where it is neither kind."""
    if "locnet" not in values:
        return Recipe.from_json(values)
    try:
        recipes = {name: Recipe.from_json(values[name]) for name in ("locnet", "classifier")}
        return Pair(**{**values, **recipes})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a pair of recipes: {error}") from error


def runs_of(recipe: Recipe | Pair) -> tuple[Recipe, ...]:
    """Give the runs that have to be trained for it."""
    return (recipe.locnet, recipe.classifier) if isinstance(recipe, Pair) else (recipe,)


def changed(recipe: Recipe | Pair, **changes: Any) -> Recipe | Pair:
    """Change fields of a recipe, or of both of a pair."""
    if isinstance(recipe, Pair):
        locnet, classifier = (replace(each, **changes) for each in runs_of(recipe))
        return replace(recipe, locnet=locnet, classifier=classifier)
    return replace(recipe, **changes)


def attack_fill(recipe: Recipe | Pair) -> Fill:
    """What the paper's attack uncovers: black, or what the LocNet was trained to look at."""
    if isinstance(recipe, Recipe):
        return "black"
    assert isinstance(recipe.locnet.objective, LocNet)
    return recipe.locnet.objective.fill
