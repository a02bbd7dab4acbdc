"""Which records may stand in one figure: a figure varies the objective, so all else is the same.

The setting of a record is all of its recipe and of its evaluation but the objective, the seed,
the precision and whether the network was compiled. A shorter schedule, other poses or rounded
weights are another setting: not another point of the same curve. A record of several networks, or
of a model that was not trained here, is of another kind, and in no figure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from upright.later import LATER_IN_RECIPES
from upright.records import Record
from upright.report.asked import unlike_the_paper

__all__ = [
    "comparable",
    "comparable_times",
    "in_each_recipe",
    "setting_in_words",
    "whole_recipe",
]

_VARIED = ("objective", "objective_digest", "seed", "precision", "compile", "code_of_attacks")


def comparable(records: Iterable[Record]) -> tuple[Record, ...]:
    """Of each data set, the records of one setting that have the accuracies that figures show.

    It is the setting of the most runs, among those that the paper has numbers for where there are
    any.
    """
    shown = [record for record in records if {"nat", "grid-775"} <= record.measured.keys()]
    runs = (record for record in shown if not (record.of_several or record.is_guest))
    return _most_alike(runs, _setting)


def comparable_times(records: Iterable[Record]) -> tuple[Record, ...]:
    """Of those, the records whose times can be compared: of one device and one precision, too.

    Where a data set has any, only those of runs that trained alone.
    """
    found = comparable(records)
    alone = {record.dataset for record in found if record.beside == 1}
    return _most_alike(
        (record for record in found if record.beside == 1 or record.dataset not in alone),
        lambda record: (record.trained_on, str(record.recipe.get("precision"))),
    )


def setting_in_words(record: Record) -> str:
    """Say what a reader must know of a setting."""
    batch, unlike = record.recipe.get("batch", "unknown size"), unlike_the_paper(record)
    return (
        f"{record.model}, {record.steps:,} steps with batches of {batch}, "
        f"evaluated on {record.images:,} images{f' ({unlike})' if unlike else ''}"
    )


def whole_recipe(record: Record) -> dict[str, Any]:
    """Give the recipe with the fields that the first records do not have."""
    if record.is_guest:
        return record.recipe
    return in_each_recipe(record.recipe, lambda recipe: LATER_IN_RECIPES | recipe)


def in_each_recipe(
    recipe: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Change a record's recipe, or all of them where it is of several networks."""
    if isinstance(members := recipe.get("members"), list):
        changed = [_in_both(each, change) for each in members if isinstance(each, dict)]
        return recipe | {"members": changed}
    return _in_both(recipe, change)


def _in_both(
    recipe: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    if "locnet" not in recipe:
        return change(recipe)
    both = {name: recipe.get(name) for name in ("locnet", "classifier")}
    return recipe | {name: change(each) for name, each in both.items() if isinstance(each, dict)}


def _most_alike(
    records: Iterable[Record], alike: Callable[[Record], Hashable]
) -> tuple[Record, ...]:
    groups: dict[str, dict[Hashable, list[Record]]] = {}
    for record in records:
        groups.setdefault(record.dataset, {}).setdefault(alike(record), []).append(record)
    return tuple(
        record for some in groups.values() for record in max(some.values(), key=_preference)
    )


def _preference(records: list[Record]) -> tuple[bool, int]:
    runs = {record.recipe_hash for record in records}
    return any(record.reported for record in records), len(runs)


def _setting(record: Record) -> str:
    recipe = whole_recipe(record)
    # Shifts are part of what most objectives search, so that std alone makes them itself.
    if recipe.get("max_shift") == (4 if record.method == "std" else 0):
        recipe["max_shift"] = None
    # Which images, the digest says.
    evaluation = record.evaluation | {"limit": None, "sample": None}
    parts = [_fixed(recipe), _fixed(evaluation), record.images_digest, record.images]
    # 3 and 3.0 are one number.
    return json.dumps(json.loads(json.dumps(parts), parse_int=float), sort_keys=True)


def _fixed(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in values.items() if name not in _VARIED and value is not None
    }
