"""Measure a network: evaluate it on test images under attacks, and give the records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from upright.attacks import parse_attack
from upright.checks import Model
from upright.measure.record import FinishedRun, record_of
from upright.measure.settings import Precision, Settings
from upright.records import Record
from upright.train import Recipe
from upright.train.pair import Pair, attack_fill, runs_of

__all__ = ["Part", "evaluation_precision", "measure_network", "parts_of"]


def evaluation_precision(recipe: Recipe | Pair) -> Precision:
    """In which precision a run is evaluated: in float32, or half of it if it was trained so."""
    return "float32" if recipe.precision == "float32" else "float16"


@dataclass(frozen=True)
class Part:
    """Attacks that share an evaluation, and its settings."""

    attacks: tuple[str, ...]
    settings: Settings


def parts_of(
    recipe: Recipe | Pair, attacks: Sequence[str], precision: Precision, limit: int | None = None
) -> tuple[Part, ...]:
    """Say which evaluations attacks take: climbing ones in float32, others in this precision.

    The signs of a gradient in half precision are not always those of the gradient.
    """
    parsed = {name: parse_attack(name) for name in attacks}
    listed = tuple(name for name, attack in parsed.items() if not attack.climbs)
    climbing = tuple(name for name in parsed if name not in listed)
    asked = replace(
        Settings.of_run(runs_of(recipe)[-1]),
        limit=limit,
        precision=precision,
        fill=attack_fill(recipe),
    )
    parts = (Part(listed, asked), Part(climbing, replace(asked, precision="float32")))
    return tuple(part for part in parts if part.attacks) or parts[:1]


def measure_network(
    run: FinishedRun,
    network: Model,
    attacks: Sequence[str],
    *,
    precision: Precision,
    device: torch.device,
    limit: int | None = None,
    states: Path | None = None,
    progress: bool = False,
) -> Iterator[Record]:
    """Evaluate a run's network on the test images: a record for each evaluation that it takes.

    Of two runs, the network is what they are together. With a folder for ``states``, an evaluation
    that was stopped is continued.
    """
    parts, name = parts_of(run.recipe, attacks, precision, limit), run.recipe.data
    data = parts[0].settings.load(name)
    for part in parts:
        settings = part.settings
        evaluation = settings.evaluate(
            settings.in_precision(network),
            data,
            attacks=part.attacks,
            only_accuracy=True,
            device=device,
            state=None if states is None else states / f"evaluation-{_digest(part)}.safetensors",
            progress=progress,
        )
        yield record_of(
            run, evaluation, data_name=name, data=data, settings=settings, device=device
        )


def _digest(part: Part) -> str:
    asked = json.dumps([part.settings.as_json(), part.attacks], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:12]
