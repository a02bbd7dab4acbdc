"""Measure a run's network on its own test images, under the attacks that are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from upright.checks import Model
from upright.evaluation import Precision, Question
from upright.measure.measured import Loaded, Measured, load_images, measure, question_of_run
from upright.train import FinishedRun, Plan

__all__ = ["evaluation_precision", "measure_run", "questions_of", "state_name"]


def evaluation_precision(plan: Plan) -> Precision:
    """In which precision a run is evaluated: in float32, or half of it if it was trained so."""
    return "float32" if plan.main.precision == "float32" else "float16"


def questions_of(plan: Plan, question: Question) -> tuple[Question, ...]:
    """Say which evaluations a question takes of a run: attacks that climb are asked in float32.

    The signs of a gradient in half precision are not always those of the gradient.
    """
    asked = replace(question_of_run(plan, question), only_accuracy=True)
    listed, climbing = (
        {name: each for name, each in asked.attacks.items() if each.climbs == climbs}
        for climbs in (False, True)
    )
    questions = (
        replace(asked, attacks=listed),
        replace(asked, attacks=climbing, precision="float32"),
    )
    return tuple(each for each in questions if each.attacks) or questions[:1]


def state_name(question: Question) -> str:
    """Name the file of an evaluation's state, which stands for all that is asked."""
    asked = json.dumps([question.for_record(), [*question.attacks]], sort_keys=True)
    return f"evaluation-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.safetensors"


def measure_run(
    run: FinishedRun,
    network: Model,
    question: Question,
    *,
    device: torch.device,
    states: Path | None = None,
    progress: bool = False,
) -> Iterator[Measured]:
    """Evaluate a run's network on the test images, as often as what is asked takes.

    Of two runs, the network is what they are together. With a folder for ``states``, an evaluation
    that was stopped is continued.
    """
    questions = questions_of(run.plan, question)
    name = run.plan.main.data
    data = load_images(questions[0], name)
    for each in questions:
        loaded = Loaded(
            model=network,
            subject=run,
            data=data,
            data_name=name,
            question=each,
            device=device,
        )
        state = None if states is None else states / state_name(each)
        yield measure(loaded, state=state, progress=progress)
