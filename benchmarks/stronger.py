"""Networks that are stronger than the paper's: what each change of its recipe adds.

    python benchmarks/stronger.py ablation --runs runs/stronger
    python benchmarks/stronger.py "together:first 2" large --final --seeds 3 --means mirror all

An experiment is a function that gives recipes by name. Without ``--final`` each is trained on nine
tenths of the training images and measured on the tenth that was held out, which is what to choose
by. With it, what was chosen is trained on all training images and measured on the test set. The
records go to ``stronger/held-out.jsonl`` and ``stronger.jsonl`` of the folder of results, where
reports read the second alone. Means of answers, over mirror images, of all seeds or of all recipes,
train nothing more. The same command continues where it was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from upright.evaluation import Question
from upright.objective import Objective
from upright.record_files import append, read
from upright.records import Record
from upright.train import Mean, Plan, Recipe
from upright.train.teacher_network import with_teacher_digest
from upright.tta import Averaging
from upright.workers import LocalEngine, Task

Recipes = dict[str, Recipe]
EXPERIMENTS: dict[str, Callable[[str], Recipes]] = {}

BASE = Recipe(objective=Objective.parse("L2(rob, Wo-10)"), precision="bfloat16")
"""The most robust of the paper's methods on a ResNet-32, by its recipe."""


def experiment(make: Callable[[str], Recipes]) -> Callable[[str], Recipes]:
    """Make an experiment known by the name of its function."""
    EXPERIMENTS[make.__name__] = make
    return make


def changed(base: Recipe, changes: dict[str, dict[str, Any]], data: str) -> Recipes:
    """Give a recipe with each of some changes."""
    return {name: replace(base, data=data, **change) for name, change in changes.items()}


ONE_CHANGE: dict[str, dict[str, Any]] = {
    "paper": {},
    "cosine": {"cosine": True},
    "average": {"average": 0.999},
    "smoothing 0.1": {"smoothing": 0.1},
    "weight decay 5e-4": {"weight_decay": 5e-4},
    "box 1.2": {"space": "shift(3.6px) rotate(36)"},
    "Wo-20": {"objective": "L2(rob, Wo-20)"},
    "cutout 8": {"cutout": 8},
    "mixup 0.3": {"mixup": 0.3},
    "KL": {"objective": "KL(rob, Wo-10)"},
}


@experiment
def ablation(data: str) -> Recipes:
    """One change at a time, on the paper's network."""
    return changed(BASE, ONE_CHANGE, data)


HELPFUL = ("cosine", "weight decay 5e-4", "smoothing 0.1", "average", "Wo-20")
"""What helped alone, on held-out images (docs/leaderboard.md), the most helpful first."""


@experiment
def together(data: str) -> Recipes:
    """The most helpful change, with the next one, and so on to all that help."""
    found, sum_of_all = Recipes(), dict[str, Any]()
    for count, name in enumerate(HELPFUL, 1):
        sum_of_all |= ONE_CHANGE[name]
        found[f"first {count}"] = replace(BASE, data=data, **sum_of_all)
    return found


CHOSEN = {key: value for name in HELPFUL[:2] for key, value in ONE_CHANGE[name].items()}
"""The best of them together: with the others on top, one after another, none was higher."""


FITTING: dict[str, dict[str, Any]] = {"svhn": {"flips": False}}
"""What a data set asks for: the paper mirrors digits, which makes no digits of them."""


@experiment
def sizes(data: str) -> Recipes:
    """The same on wider networks."""
    made = CHOSEN | FITTING.get(data, {})
    models = {f"x{width}": made | {"model": f"resnet32x{width}"} for width in (2, 4)}
    return changed(BASE, {"x1": made, **models}, data)


LAMBDA = {"cifar100": 0.1}
"""Of the penalty where it is not the usual one: 1 is far too much for a hundred classes."""


def fewer_draws(data: str, *, batch_type: str = "rob", factor: float = 1.0) -> str:
    """Give the method of large networks, with a penalty of so many times the usual weight."""
    return f"L2({batch_type}, Wo-4; λ={factor * LAMBDA.get(data, 1.0):g})"


@experiment
def large(data: str) -> Recipes:
    """Networks of twenty to fifty times the arithmetic, for fifty epochs, by fewer draws.

    The G-ResNets are built for invariance. The 12, 24 and 48 channels of the first on each of 8
    planes are 96, 192 and 384 in all, for which cuDNN has better kernels than for the 88, 184 and
    360 of the published one (`gpu_convolutions.py`); the second has 128, 256 and 512 on half as
    many layers. Batches of twice the paper's size likewise keep them busy.
    """
    made = CHOSEN | FITTING.get(data, {})
    made |= {"objective": fewer_draws(data), "batch": 128, "steps": 20_000}
    models = ("gresnet44x1.06", "gresnet20x1.412", "wideresnet16-8")
    return changed(BASE, {model: made | {"model": model} for model in models}, data)


OF_LARGE: dict[str, dict[str, Any]] = {
    "none": {},
    "weight decay 1e-3": {"weight_decay": 1e-3},
    "mixup 0.5": {"mixup": 0.5},
    "both": {"weight_decay": 1e-3, "mixup": 0.5},
    "cutout 12": {"cutout": 12},
    "smoothing 0.1": {"smoothing": 0.1},
    "colours": {"jitter": "brightness(0.2) contrast(0.7..1.4) saturation(0.5..2) hue(15)"},
    "zoom": {"jitter": "zoom(0.8..1.25) stretch(0.9..1.1)"},
}
"""What keeps a network from learning images by heart. With 0.5 the other image of a mixture is
never the larger part of it: that is all that there is to draw."""


@experiment
def large_ablation(data: str) -> Recipes:
    """One change at a time where training images are learned by heart.

    On the wide network with half the channels, which is large enough for that, and for fewer steps.
    """
    base = replace(large(data)["wideresnet16-8"], model="wideresnet16-4", steps=15_000)
    penalties = {
        "λ x 4": {"objective": fewer_draws(data, factor=4)},
        "mix": {"objective": fewer_draws(data, batch_type="mix")},
    }
    return changed(base, OF_LARGE | penalties, data)


@experiment
def regularised(data: str) -> Recipes:
    """Each of these changes on each of the large networks, to name those that were chosen."""
    return {
        f"{network}, {name}": replace(recipe, **change)
        for network, recipe in large(data).items()
        for name, change in OF_LARGE.items()
    }


@experiment
def antialiased(data: str) -> Recipes:
    """Sizes that are halved after a blur, by the paper's recipe and by the chosen one."""
    blur = {"model": "resnet32-blur"}
    return changed(BASE, {"blur": blur, "blur, chosen": blur | CHOSEN}, data)


def seeded(recipes: Recipes, seeds: range) -> Iterator[tuple[str, Recipe]]:
    for seed in seeds:
        for name, recipe in recipes.items():
            yield name, replace(recipe, seed=seed)


def means(text: str, seeds: Mapping[str, Sequence[Recipe]]) -> Iterator[tuple[str, Mean]]:
    """Give the means that a text asks for, of runs by the names of their recipes."""
    of, _, over = text.partition("+")
    if of not in ("seeds", "all"):
        of, over = "", text
    averaging = Averaging.parse(over) if over else None
    if of == "all":
        every = tuple(run for runs in seeds.values() for run in runs)
        yield f"mean of {text}", Mean(members=every, over=averaging)
        return
    for name, runs in seeds.items():
        for members in [tuple(runs)] if of else [(run,) for run in runs]:
            yield f"{name}, mean of {text}", Mean(members=members, over=averaging)


@dataclass(frozen=True, kw_only=True)
class Stronger:
    """Train and measure experiments."""

    experiments: tyro.conf.Positional[tuple[str, ...]]
    """Their names; NAME:RECIPE for one recipe of an experiment alone."""
    data: str = "cifar10"
    attacks: tuple[str, ...] = ("grid-775",)
    final: bool = False
    """Train on all training images, and measure on the test set."""
    seeds: int = 1
    first_seed: int = 0
    """From which seeds count: those before it may be recorded already, their runs gone."""
    means: tuple[str, ...] = ()
    """Measure means of answers as well: ``mirror`` (see ``upright.tta``) for that of an image and
    its mirror image, ``seeds`` for that of all seeds, ``all`` for that of all recipes and seeds,
    ``seeds+mirror`` and ``all+mirror`` for both at once."""
    means_alone: bool = False
    """Measure the means and no run by itself: to look at all poses of a test set may take half as
    long as to train. Without it, the same command measures the runs later."""
    together: int = 4
    """How many runs train side by side."""
    steps: int | None = None
    """Other than a recipe has: to show that it runs, or where there is less time."""
    compile: bool = False
    """Compile networks to evaluate them, see ``upright evaluate --compile``."""
    teacher: str = ""
    """Whose network says what labels are, for all of them: a folder of a run, or ``zoo:NAME``."""
    teacher_share: float = 1.0
    """So large a part of each label is what the teacher says."""
    test_images: int | None = None
    runs: Path = Path("runs/stronger")
    results: Path = Path("runs/stronger/results")
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self) -> None:
        """Make what is missing, and show all."""
        named = {plan: name for name, plan in self._plans()}
        names = {plan.hash: name for plan, name in named.items()}
        question = Question(split="test" if self.final else "held-out", compile=self.compile)
        tasks = [
            Task(
                plan=plan,
                attacks=self.attacks,
                question=question,
                test_images=self.test_images,
            )
            for plan in named
            if not self._is_done(plan)
        ]
        engine = LocalEngine(
            runs=self.runs, device=torch.device(self.device), together=self.together
        )
        began = time.perf_counter()
        for failure in engine.run(tasks, partial(self._keep, names)):
            print(f"failed: {failure.task}: {failure.reason}")
        print(f"{time.perf_counter() - began:.0f} s")
        Console().print(self._table(names))

    def _plans(self) -> Iterator[tuple[str, Plan]]:
        seeds: dict[str, list[Recipe]] = {}
        for name, recipe in self._recipes():
            seeds.setdefault(name, []).append(recipe)
            if not self.means_alone:
                yield name, recipe
        for text in self.means:
            yield from means(text, seeds)

    def _recipes(self) -> Iterator[tuple[str, Recipe]]:
        for asked in self.experiments:
            experiment, _, only = asked.partition(":")
            recipes = EXPERIMENTS[experiment](self.data)
            chosen = {only: recipes[only]} if only else recipes
            seeds = range(self.first_seed, self.first_seed + self.seeds)
            for name, recipe in seeded(chosen, seeds):
                steps = recipe.steps if self.steps is None else self.steps
                own = replace(recipe, held_out=not self.final, steps=steps)
                if self.teacher:
                    own = replace(own, teacher=self.teacher, teacher_share=self.teacher_share)
                wanted = with_teacher_digest(own)
                if self.device == "cpu":
                    wanted = replace(wanted, precision="float32")
                yield f"{experiment}:{name}", wanted

    @property
    def _file(self) -> Path:
        return self.results / ("stronger.jsonl" if self.final else "stronger/held-out.jsonl")

    def _records(self) -> tuple[Record, ...]:
        return read(self._file).records if self._file.exists() else ()

    def _is_done(self, plan: Plan) -> bool:
        its = [each.measured for each in self._records() if each.recipe_hash == plan.hash]
        return set(self.attacks) <= {name for measured in its for name in measured}

    def _keep(self, names: dict[str, str], record: Record) -> None:
        append(self._file, record)
        print(names[record.recipe_hash], record.seed, record.measured, flush=True)

    def _table(self, names: dict[str, str]) -> Table:
        metrics = ("nat", *self.attacks)
        table = Table("recipe", "seed", *metrics, "s", title=f"{self._file.stem}, in %")
        for record in self._records():
            measured = [record.measured.get(metric) for metric in metrics]
            shown = ["-" if share is None else f"{100 * share:.2f}" for share in measured]
            seconds = f"{record.train_seconds or 0:.0f}"
            table.add_row(names.get(record.recipe_hash, "?"), str(record.seed), *shown, seconds)
        return table


if __name__ == "__main__":
    tyro.cli(Stronger)()
