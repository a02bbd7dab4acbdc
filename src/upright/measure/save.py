"""From a model and its evaluation to the arrays that the report's explorer shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from upright.attacks import GridSearch, parse_attack
from upright.evaluation import Evaluation, Question
from upright.evaluation.answers import Answers, answers
from upright.measure.measured import Loaded, Measured, digests_of
from upright.origin import origin_on
from upright.pose import Pose
from upright.report.exhibition import SavedModel, Shown, record_id
from upright.report.saved import write_saved
from upright.report.saved_checks import check_shown

__all__ = ["check_can_save", "choose_shown", "grid_among", "save_answers"]

_MANY = 20
"""Classes: of a model with more, the likeliest after the first are saved, too."""
_ALONG = 100
"""Images that are drawn along one axis, as many as in the paper's figure of angles."""


def grid_among(attacks: Iterable[str]) -> tuple[str, GridSearch]:
    """Give the first grid of the attacks that were asked for, with its name."""
    for name in attacks:
        attack = parse_attack(name)
        if isinstance(attack, GridSearch):
            return name, attack
    raise ValueError("arrays are saved over a grid: add an attack such as grid-775")


def check_can_save(question: Question) -> None:
    """Say why what is asked could not be shown in the explorer, before it is measured."""
    grid_among(question.attacks)
    if (question.fill, question.interpolation) != ("black", "bilinear"):
        raise ValueError(
            "the explorer moves images with black around them and bilinear interpolation: "
            "leave out --fill and --interpolation, or --save"
        )
    if question.top > 1:
        raise ValueError(
            "the explorer shows the class of the largest logit: leave out --top, or --save"
        )
    if question.include_identity:
        raise ValueError(
            "the explorer shows the poses of the grid alone: leave out --include-identity, or "
            "--save"
        )
    if question.sample is not None:
        raise ValueError(
            "the explorer shows what was measured of all images: leave out --sample and --minutes, "
            "or --save"
        )


def choose_shown(loaded: Loaded, *, explored: int = 24) -> Shown:
    """Choose images at random, with a fixed seed: of the same data, always the same ones.

    Args:
        loaded: the images that models are evaluated on, and how; the first grid that is asked for
            has the poses at which models answer.
        explored: how many images get all poses of the grid. Up to 100 vary along the one axis of
            most values, the rest of their pose zero.
    """
    data, question = loaded.data, loaded.question
    _, grid = grid_among(question.attacks)
    chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:_ALONG]
    box = question.space_for(data.images)
    box.check_counts(grid.counts)
    values = {
        axis.name: axis.spread(count).float().numpy()
        for axis, count in zip(box.axes, grid.counts, strict=True)
    }
    shown = Shown(
        dataset=loaded.data_name,
        split=question.split,
        classes=data.classes,
        data_digest=digests_of(data, question.split),
        images=F.pad(data.images[chosen[:explored]].cpu(), [question.canvas] * 4).numpy(),
        canvas=question.canvas,
        labels=data.labels[chosen].cpu().numpy(),
        places=chosen.numpy(),
        space=box,
        grid=values,
        along=max(values, key=lambda name: len(values[name])),
        view=question.view,
    )
    check_shown(shown)
    return shown


def save_answers(folder: Path, measured: Measured, shown: Shown, *, name: str) -> Path:
    """Ask a model about the shown images, save its answers beside others, and give the file.

    It was measured with a grid among the attacks, and is called by this name.
    """
    return write_saved(folder, shown, _saved(measured, shown, name))


def _saved(measured: Measured, shown: Shown, name: str) -> SavedModel:
    evaluation, record = measured.evaluation, measured.record
    attack, grid = grid_among(evaluation.attacks)
    few = len(shown.images)
    over_grid = _answers(measured.loaded, shown, few, shown.poses())
    as_it_is = _answers(measured.loaded, shown, few, shown.space.zeros(1))
    along = _answers(measured.loaded, shown, len(shown.labels), shown.poses_along())
    return SavedModel(
        name=name,
        method=record.method,
        seed=None if record.is_guest else record.seed,
        attack=attack,
        measured=dict(record.measured),
        record=record_id(record),
        origin=_origin(measured.loaded.device),
        predicted=_classes(over_grid.predicted, evaluation).reshape(-1, *grid.counts),
        confidence=_in_255ths(over_grid.confidence).reshape(-1, *grid.counts),
        natural=_classes(as_it_is.predicted, evaluation)[:, 0],
        natural_confidence=_in_255ths(as_it_is.confidence)[:, 0],
        worst=over_grid.worst.numpy(),
        predicted_along=_classes(along.predicted, evaluation),
        natural_correct=evaluation.natural_correct.numpy(),
        grid_correct=evaluation.attacks[attack].correct.numpy(),
        **_others(over_grid, evaluation, grid.counts),
    )


def _others(
    found: Answers, evaluation: Evaluation, counts: Sequence[int]
) -> dict[str, np.ndarray[Any, Any]]:
    """The likeliest classes after the first, where there are many."""
    if evaluation.classes <= _MANY:
        return {}
    shape = (len(found.others), *counts, -1)
    return {
        "others": _classes(found.others, evaluation).reshape(shape),
        "others_confidence": _in_255ths(found.others_confidence).reshape(shape),
    }


def _answers(loaded: Loaded, shown: Shown, count: int, poses: Pose) -> Answers:
    """Ask about the first so many of the shown places."""
    chosen = loaded.data.images[torch.as_tensor(shown.places[:count])].cpu()
    images = F.pad(chosen, [shown.canvas] * 4).float() / 255
    labels = torch.as_tensor(shown.labels[:count])
    return answers(
        loaded.model,
        images,
        labels,
        poses,
        device=loaded.device,
        view=shown.view,
        canvas=shown.canvas,
    )


def _classes(predicted: Tensor, evaluation: Evaluation) -> np.ndarray[Any, Any]:
    """Classes in as few bytes as the largest of them needs."""
    return predicted.numpy().astype(np.min_scalar_type(evaluation.classes - 1))


def _in_255ths(confidence: Tensor) -> np.ndarray[Any, Any]:
    return (255 * confidence).round().to(torch.uint8).numpy()


def _origin(device: torch.device) -> dict[str, Any]:
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    return asdict(origin_on(device)) | {"finished": finished}
