"""Made-up records: no run gave these numbers. They are for tests of tables and plans alone."""

from __future__ import annotations

from typing import Any

from upright.data.known import KNOWN
from upright.records import Record
from upright.space import PAPER
from upright.train import Plan, Recipe

EVALUATION = {
    "space": str(PAPER),
    "split": "test",
    "limit": None,
    "fill": "black",
    "interpolation": "bilinear",
    "canvas": 0,
    "precision": "float32",
    "seed": None,
}
PAPER_STEPS = {"svhn": 80_000, "cifar10": 80_000, "cifar100": 120_000}


def made_up_record(
    recipe: Plan,
    measured: dict[str, float],
    /,
    *,
    evaluation: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    """A record of what was never measured, of a run that never was."""
    known = KNOWN.get(recipe.main.data)
    digests = {} if known is None else dict(known.variants[0].digests)
    fields: dict[str, Any] = {
        "dataset": recipe.main.data,
        "method": recipe.method,
        "model": recipe.main.model,
        "seed": recipe.main.seed,
        "recipe": recipe.as_json(),
        "recipe_hash": recipe.hash,
        "evaluation": EVALUATION | (evaluation or {}),
        "measured": measured,
        "images": 10_000,
        "reported": {},
        "steps": recipe.total_steps,
        "train_seconds": 400.0,
        "evaluate_seconds": 20.0,
        "forward_passes": 7_760_000,
        "data_digest": {name: value for name, value in digests.items() if "test" in name},
        "commit": "made-up",
        "versions": {"made-up": "0"},
        "hardware": "made-up GPU",
        "finished": "2000-01-01T00:00:00+00:00",
        "beside": 1,
    }
    return Record(**fields | changes)


def paper_recipe(dataset: str, objective: str, **changes: Any) -> Recipe:
    """The paper's recipe, written down without the help of the plan."""
    fields = {"objective": objective, "data": dataset, "steps": PAPER_STEPS[dataset]}
    if changes.get("model") in ("etn34", "stn34"):  # as published by Tai, Bailis and Valiant
        fields |= {"optimizer": "adam", "learning_rate": 0.002}
    return Recipe(**fields | changes)
