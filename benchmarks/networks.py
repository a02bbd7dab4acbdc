"""Specialised networks and regularised training on ``glyphs``, each with and without the other.

    python benchmarks/networks.py [--out runs/networks] [--steps 1500] [--test-images 200]

Trains a small ResNet, G-ResNet, STN and ETN, each as ``std``, ``std*`` and ``KL(rob, Wo-10)``, and
prints natural and grid accuracy. Two runs at a time, each on one core. The same command continues
where it was stopped: what is trained is not trained again, what is measured not measured again.

All networks are small and share one short recipe, so the table compares them at equal steps; it is
no reproduction of the paper's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.table import Table

from upright.cli.table import roomy_console
from upright.data import load_data
from upright.evaluation import evaluate
from upright.files import write_whole
from upright.models import build_network
from upright.objective import parse_objective
from upright.train import Recipe, train

NETWORKS = ("resnet8x0.5", "gresnet8x0.25", "stn10x0.25", "etn10x0.25")
# λ is 8 in the paper's 80,000 steps; in so few, so strong a penalty holds the rest up.
OBJECTIVES = ("std", "std*", "KL(rob, Wo-10; λ=1)")
ATTACK = "grid-5x5x7"


@dataclass(frozen=True)
class Job:
    recipe: Recipe
    folder: Path
    test_images: int


@dataclass(frozen=True)
class Outcome:
    """What a run came to; accuracies are fractions."""

    network: str
    objective: str
    parameters: int
    natural: float
    grid: float
    seconds: float
    """Of training."""


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    jobs = [
        Job(
            _recipe(network, objective, options.steps),
            options.out / _plain(f"{network} {objective} {options.steps}"),
            options.test_images,
        )
        for network in options.networks
        for objective in options.objectives
    ]
    for job in jobs:
        build_network(job.recipe.model)  # a wrong name is told before anything is trained
    outcomes = _run(jobs, options.workers)
    roomy_console().print(_table([outcomes[job.folder] for job in jobs], options.test_images))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/networks"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--test-images", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES)
    return parser.parse_args(argv)


def _recipe(network: str, objective: str, steps: int) -> Recipe:
    return Recipe(
        objective=parse_objective(objective),
        data="glyphs",
        train_images=4000,
        model=network,
        steps=steps,
        batch=32,
        optimizer="adam",
        learning_rate=2e-3,
        weight_decay=0.0,
        flips=False,  # a mirrored digit is no digit
    )


def _plain(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9.]+", text.lower().replace("*", "-star")))


def _run(jobs: list[Job], workers: int) -> dict[Path, Outcome]:
    """Train and measure, the longest first."""
    outcomes = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        waiting = {pool.submit(outcome_of, job): job for job in reversed(jobs)}
        for done in as_completed(waiting):
            outcome = outcomes[waiting[done].folder] = done.result()
            print(
                f"{outcome.network} {outcome.objective}: natural {100 * outcome.natural:.1f} %, "
                f"grid {100 * outcome.grid:.1f} %, {outcome.seconds:.0f} s",
                flush=True,
            )
    return outcomes


def outcome_of(job: Job) -> Outcome:
    """Train a network and measure it, or take up what was done before."""
    file = job.folder / f"outcome-{job.test_images}.json"
    if file.exists():
        return Outcome(**json.loads(file.read_text()))
    run = train(job.recipe, job.folder, resume=True, checkpoint_every=100)
    if not run.finished:
        raise KeyboardInterrupt
    data = load_data("glyphs", split="test", limit=job.test_images)
    found = evaluate(run.model, (data.images, data.labels), attacks=[ATTACK], only_accuracy=True)
    outcome = Outcome(
        network=job.recipe.model,
        objective=str(job.recipe.objective),
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        natural=found.natural_accuracy,
        grid=found.attacks[ATTACK].accuracy,
        seconds=run.seconds,
    )
    write_whole(file, json.dumps(asdict(outcome)).encode())
    return outcome


def _table(outcomes: list[Outcome], images: int) -> Table:
    table = Table(title=f"glyphs: natural / {ATTACK} accuracy in %, {images} test images")
    objectives = list(dict.fromkeys(outcome.objective for outcome in outcomes))
    for heading in ("network", "parameters", *objectives):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    for network in dict.fromkeys(outcome.network for outcome in outcomes):
        row = {each.objective: each for each in outcomes if each.network == network}
        cells = [
            f"{100 * row[name].natural:.1f} / {100 * row[name].grid:.1f}" for name in objectives
        ]
        table.add_row(network, f"{next(iter(row.values())).parameters:,}", *cells)
    return table


if __name__ == "__main__":
    main()
