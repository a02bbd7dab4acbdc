"""What one change of the paper's recipe does, where the paper is silent about it.

    python benchmarks/one_change.py --dataset cifar100 --method 'std*' \
        --change '{}' --change '{"weight_decay": 1e-4}' --change '{"drops": [0.333, 0.5]}'

Trains a method by the paper's recipe with each change, side by side, evaluates it on the whole test
set, under grid-775 or the attacks that are asked for, and adds records to a folder of their own:
what fills a cell of the paper is chosen once for all data sets, and not here. The same command
continues where it was stopped. Without a change it compares methods that the paper does not have:

    python benchmarks/one_change.py --change '{}' --attack grid-775 --attack refine-1000 \
        --method 'KL(rob, Wo-10)' --method 'KL(rob, refine-10+rnd)'

and with spaces what networks withstand that were trained on another, such as half the shifts:

    python benchmarks/one_change.py --method 'KL-C(mix, S-PGD)' --method 'ALP(rob, S-PGD)' \
        --change '{}' --change '{"space": "shift(1.5px) rotate(30)"}' \
        --space 'shift(3px) rotate(30)' --space 'shift(1.5px) rotate(30)'

Of two networks together a change says which recipe it is of, such as another classifier behind the
same LocNet:

    python benchmarks/one_change.py --method 'STN+(c) naive' --method 'STN+(c) trick' \
        --change '{}' --change '{"classifier": {"objective": "std", "max_shift": 4}}'
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from upright.paper import INVARIANCE, Paper, reported, wanted
from upright.paper.missing import make_missing
from upright.record_files import RecordFolder
from upright.space import PAPER, Space
from upright.train import Plan
from upright.train.any_plan import plan_from_json
from upright.workers import LocalEngine, Task


@dataclass(frozen=True, kw_only=True)
class OneChange:
    """Train a method by the paper's recipe, changed in one way or another."""

    method: tyro.conf.UseAppendAction[tuple[str, ...]]
    """In the paper's notation; several may be given."""
    change: tyro.conf.UseAppendAction[tuple[str, ...]]
    """Fields of the recipe as JSON, such as '{"weight_decay": 1e-4}'; several may be given."""
    attack: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Under which to evaluate, such as refine-1000; several may be given. Without, grid-775."""
    space: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """In which attacks search, such as 'shift(1.5px) rotate(30)'; several may be given. Without,
    the paper's."""
    dataset: str = "cifar10"
    together: int = 4
    """How many runs train side by side."""
    seed: int = 0
    runs: Path = Path("runs/one-change")
    results: Path = Path("runs/one-change/results")
    test_images: int | None = None
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self) -> None:
        """Make the runs that are missing, and show all."""
        named = {
            changed(self.dataset, method, change, self): (method, change)
            for method in self.method
            for change in self.change
        }
        results = RecordFolder(self.results)
        engine = LocalEngine(
            runs=self.runs, device=torch.device(self.device), together=self.together
        )
        attacks = self.attack or ("grid-775",)
        for space in map(Space.of, self.space or (str(PAPER),)):
            paper = asked_of(space)
            tasks = [
                Task(
                    plan=recipe,
                    attacks=attacks,
                    test_images=self.test_images,
                    question=paper.question,
                )
                for recipe in named
            ]
            for failure in make_missing(paper, tasks, engine, results, say=print):
                print(f"failed: {failure.task}: {failure.reason}")
            found: dict[str, dict[str, float]] = {}
            for record in results.read():
                if record.evaluation.get("space") == str(space):
                    found.setdefault(record.recipe_hash, {}).update(record.measured)
            title = f"{self.dataset}, {space}: accuracies in %"
            Console().print(_table(title, self.dataset, named, found, ("nat", *attacks)))


def asked_of(space: Space) -> Paper:
    """Give the paper with its networks asked of another space, of which it reports nothing."""
    question = replace(INVARIANCE.question, space=space)
    return INVARIANCE if space == PAPER else replace(INVARIANCE, question=question, layouts=())


def changed(dataset: str, method: str, change: str, asked: OneChange) -> Plan:
    """Give the paper's recipe of a method, changed; of two networks the one that is named."""
    precision = "bfloat16" if asked.device == "cuda" else "float32"
    plan = wanted(dataset, method)[0].changed(seed=asked.seed, precision=precision)
    return plan_from_json(_put(plan.as_json(), json.loads(change)))


def _put(values: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    inner = {
        name: _put(values[name], its)
        for name, its in change.items()
        if isinstance(its, dict) and isinstance(values.get(name), dict)
    }
    return values | change | inner


def _table(
    title: str,
    dataset: str,
    named: dict[Plan, tuple[str, str]],
    found: dict[str, dict[str, float]],
    metrics: tuple[str, ...],
) -> Table:
    table = Table("method", "change", *metrics, title=title)
    for recipe, (method, change) in named.items():
        measured = found.get(recipe.hash, {})
        table.add_row(method, change, *(_percent(measured.get(metric)) for metric in metrics))
    for method in dict.fromkeys(method for method, _ in named.values()):
        values = [reported(dataset, method, metric) for metric in metrics]
        shown = [_percent(None if value is None else value.mean) for value in values]
        table.add_row(method, "the paper", *shown)
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


if __name__ == "__main__":
    tyro.cli(OneChange)()
