"""Measure a model: it is loaded, evaluated and recorded here, whoever asks for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from upright.checks import Model
from upright.data import LabelledImages
from upright.evaluation import Evaluation, Question, examine
from upright.measure.guest import Guest
from upright.measure.record import record_of
from upright.measure.subject import FinishedRun, Subject
from upright.measure.taken import in_precision, load_images
from upright.ranks import ALONE, Ranks
from upright.records import Record
from upright.sources import load_model

__all__ = ["Loaded", "Measured", "load", "measure"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A model and the images to measure it on, both on hand."""

    model: Model
    subject: Subject | None
    """Whom a record is about; None where there is to be none."""
    data: LabelledImages
    data_name: str
    """As they were asked for, such as ``cifar10`` or ``npz:FILE``."""
    question: Question
    """What the evaluation is asked."""
    device: torch.device


def load(
    model: str,
    data: str,
    question: Question,
    *,
    device: torch.device,
    recorded: bool = True,
    called: str | None = None,
) -> Loaded:
    """Load a model by name, and the images that a question asks for of data by name.

    Args:
        model: one of ``sources.model_names()``, filled in.
        data: see ``load_data``.
        question: what the evaluation is to be asked.
        device: where to evaluate.
        recorded: whether a record is wanted, for which a run must be finished.
        called: what tables call a model that was not trained here; without, its name.
    """
    run = FinishedRun.of_model(model) if recorded else None
    network = load_model(model, device=device)
    guest = Guest.of(network, model, name=called) if recorded and run is None else None
    return Loaded(
        model=network,
        subject=run or guest,
        data=load_images(question, data),
        data_name=data,
        question=question,
        device=device,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A finished evaluation, and of what."""

    loaded: Loaded
    """With the model in the precision in which it was evaluated."""
    evaluation: Evaluation

    @cached_property
    def record(self) -> Record:
        """Made once, so that all who keep it keep the same."""
        loaded = self.loaded
        assert loaded.subject is not None  # or nobody would ask
        return record_of(
            loaded.subject,
            self.evaluation,
            data_name=loaded.data_name,
            data=loaded.data,
            question=loaded.question,
            device=loaded.device,
        )


def measure(
    loaded: Loaded,
    *,
    batch_size: int | None = None,
    state: Path | None = None,
    progress: bool = False,
    ranks: Ranks = ALONE,
) -> Measured:
    """Evaluate what was loaded; the options are ``upright.evaluate``'s."""
    model, data = in_precision(loaded.question, loaded.model), loaded.data
    evaluation = examine(
        model,
        (data.images, data.labels),
        loaded.question,
        batch_size=batch_size,
        device=loaded.device,
        state=state,
        progress=progress,
        ranks=ranks,
    )
    return Measured(loaded=replace(loaded, model=model), evaluation=evaluation)
