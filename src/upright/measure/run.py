"""Measure a run's network on its own test images, under the attacks that are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from upright.attacks import parse_attack
from upright.checks import Model
from upright.measure.measured import Loaded, Measured, measure
from upright.measure.settings import Precision, Settings
from upright.measure.subject import FinishedRun
from upright.train import Plan

__all__ = ["SharedEvaluation", "evaluation_precision", "evaluations_of", "measure_run"]


def evaluation_precision(recipe: Plan) -> Precision:
    """In which precision a run is evaluated: in float32, or half of it if it was trained so."""
    return "float32" if recipe.main.precision == "float32" else "float16"


@dataclass(frozen=True)
class SharedEvaluation:
    """Attacks that share an evaluation, and its settings."""

    attacks: tuple[str, ...]
    settings: Settings

    @property
    def state_name(self) -> str:
        """The file of its state, which says what was asked."""
        asked = json.dumps([self.settings.as_json(), self.attacks], sort_keys=True)
        return f"evaluation-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.safetensors"


def evaluations_of(
    recipe: Plan, attacks: Sequence[str], precision: Precision, limit: int | None = None
) -> tuple[SharedEvaluation, ...]:
    """Say which evaluations attacks take: those that climb in float32, others in this precision.

    The signs of a gradient in half precision are not always those of the gradient.
    """
    climbs = {name: parse_attack(name).climbs for name in attacks}
    asked = replace(
        Settings.of_run(recipe.main), limit=limit, precision=precision, fill=recipe.attack_fill
    )
    both = (
        SharedEvaluation(tuple(name for name in climbs if not climbs[name]), asked),
        SharedEvaluation(
            tuple(name for name in climbs if climbs[name]), replace(asked, precision="float32")
        ),
    )
    return tuple(each for each in both if each.attacks) or both[:1]


def measure_run(
    run: FinishedRun,
    network: Model,
    attacks: Sequence[str],
    *,
    precision: Precision,
    device: torch.device,
    limit: int | None = None,
    states: Path | None = None,
    progress: bool = False,
) -> Iterator[Measured]:
    """Evaluate a run's network on the test images, as often as the attacks take.

    Of two runs, the network is what they are together. With a folder for ``states``, an evaluation
    that was stopped is continued.
    """
    name, data = run.recipe.main.data, None
    for each in evaluations_of(run.recipe, attacks, precision, limit):
        data = each.settings.load(name) if data is None else data
        loaded = Loaded(
            model=network,
            subject=run,
            data=data,
            data_name=name,
            settings=each.settings,
            device=device,
        )
        state = None if states is None else states / each.state_name
        yield measure(loaded, each.attacks, state=state, progress=progress)
