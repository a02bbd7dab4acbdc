"""Measure the paper's STN+ trick, an oracle that reads the attack's own pose: no defence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from upright.evaluation import Oracle, Question
from upright.measure.measured import Loaded, Measured, load_images, measure, question_of_run
from upright.sources import load_locator, load_model
from upright.train import FinishedRun, RunDirectory

__all__ = ["measure_oracle"]


def measure_oracle(
    locnet: Path,
    classifier: str,
    data: str,
    question: Question,
    *,
    device: torch.device,
    recorded: bool = True,
    progress: bool = False,
) -> Measured:
    """Load a LocNet's run and a classifier by name, and evaluate them as the oracle.

    Images have the size, and poses the fill, that the LocNet was trained on. A record tells of two
    runs: where one is wanted (``recorded``), the classifier is the folder of one.
    """
    locator = load_locator(locnet).to(device)
    runs = FinishedRun.of_pair(locnet, Path(classifier), oracle=True) if recorded else None
    recipe = RunDirectory.open(locnet).recipe
    question = replace(question_of_run(recipe, question), only_accuracy=True)
    loaded = Loaded(
        model=Oracle(locator, load_model(classifier, device=device)).eval(),
        subject=runs,
        data=load_images(question, data),
        data_name=data,
        question=question,
        device=device,
    )
    return measure(loaded, progress=progress)
