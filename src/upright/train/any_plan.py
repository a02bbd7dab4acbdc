"""Every kind of plan from what a record has of it."""

from __future__ import annotations

from typing import Any

from upright.train.mean import Mean
from upright.train.pair import Pair
from upright.train.plan import Plan
from upright.train.recipe import Recipe
from upright.tta import Averaging

__all__ = ["plan_from_json"]


def plan_from_json(values: dict[str, Any]) -> Plan:
    """Read what a record has as its recipe; ``ValueError`` where it is no kind of plan."""
    return _mean(values) if "members" in values else _of_runs(values)


def _of_runs(values: dict[str, Any]) -> Plan:
    return _pair(values) if "locnet" in values else Recipe.from_json(values)


def _pair(values: dict[str, Any]) -> Pair:
    try:
        recipes = {name: Recipe.from_json(values[name]) for name in ("locnet", "classifier")}
        return Pair(**{**values, **recipes})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a pair of recipes: {error}") from error


def _mean(values: dict[str, Any]) -> Mean:
    try:
        members, over = tuple(map(_of_runs, values["members"])), values["over"]
        averaging = None if over is None else Averaging.parse(over)
        return Mean(**{**values, "members": members, "over": averaging})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a mean of plans: {error}") from error
