"""Measure a network: evaluate it on test images under attacks, and give the records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from upright.checks import Model
from upright.evaluation import Precision, Question, examine
from upright.evaluation.question import named_attacks
from upright.measure.record import FinishedRun, record_of
from upright.measure.taken import in_precision, load_images, question_of_run
from upright.records import Record
from upright.train import Recipe
from upright.train.pair import Pair, attack_fill, runs_of

__all__ = ["evaluation_precision", "measure_network", "questions_of"]


def evaluation_precision(recipe: Recipe | Pair) -> Precision:
    """In which precision a run is evaluated: in float32, or half of it if it was trained so."""
    return "float32" if recipe.precision == "float32" else "float16"


def questions_of(
    recipe: Recipe | Pair, attacks: Sequence[str], precision: Precision, limit: int | None = None
) -> tuple[Question, ...]:
    """Say which evaluations attacks take: climbing ones in float32, others in this precision.

    The signs of a gradient in half precision are not always those of the gradient.
    """
    named = named_attacks(attacks)
    listed = {name: attack for name, attack in named.items() if not attack.climbs}
    climbing = {name: attack for name, attack in named.items() if attack.climbs}
    asked = replace(
        question_of_run(runs_of(recipe)[-1]),
        attacks=listed,
        only_accuracy=True,
        limit=limit,
        precision=precision,
        fill=attack_fill(recipe),
    )
    questions = (asked, replace(asked, attacks=climbing, precision="float32"))
    return tuple(each for each in questions if each.attacks) or questions[:1]


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
    questions, name = questions_of(run.recipe, attacks, precision, limit), run.recipe.data
    data = load_images(questions[0], name)
    for question in questions:
        file = f"evaluation-{_digest(question)}.safetensors"
        evaluation = examine(
            in_precision(question, network),
            (data.images, data.labels),
            question,
            device=device,
            state=None if states is None else states / file,
            progress=progress,
        )
        yield record_of(
            run, evaluation, data_name=name, data=data, question=question, device=device
        )


def _digest(question: Question) -> str:
    asked = json.dumps([question.for_record(), [*question.attacks]], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:12]
