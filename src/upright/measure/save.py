"""From a model and its evaluation to the arrays that the report's explorer shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from upright.attacks import GridSearch, parse_attack
from upright.checks import Model
from upright.data import LabelledImages, Split
from upright.evaluation import Evaluation
from upright.evaluation.answers import Answers, answers
from upright.measure.record import digests_of
from upright.origin import origin_on
from upright.pose import Pose
from upright.records import Record
from upright.report.saved import SavedModel, Shown, record_id, write_saved
from upright.report.saved_checks import check_shown
from upright.space import Space

__all__ = ["Subject", "choose_shown", "grid_among", "keep"]

_ALONG = 100
"""Images that are drawn along one axis, as many as in the paper's figure of angles."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A model that has been evaluated, and on what."""

    name: str
    """As it was asked for."""
    model: Model
    data: LabelledImages
    evaluation: Evaluation
    """With a grid among its attacks."""
    record: Record | None = None
    """Of the evaluation, whether it is kept or not."""
    device: torch.device | str = "cpu"


def grid_among(attacks: Iterable[str]) -> tuple[str, GridSearch]:
    """Give the first grid of the attacks that were asked for, with its name."""
    for name in attacks:
        attack = parse_attack(name)
        if isinstance(attack, GridSearch):
            return name, attack
    raise ValueError("arrays are saved over a grid: add an attack such as grid-775")


def choose_shown(
    data: LabelledImages,
    grid: GridSearch,
    *,
    data_name: str,
    space: Space,
    split: Split = "test",
    canvas: int = 0,
    explored: int = 24,
) -> Shown:
    """Choose images at random, with a fixed seed: of the same data, always the same ones.

    Args:
        data: the images that models are evaluated on.
        grid: the poses at which they answer.
        data_name: of the data, as they were asked for.
        space: the box of poses.
        split: which part of the data.
        canvas: pixels of black around all images, as in the evaluation.
        explored: how many images get all poses of the grid. Up to 100 vary along the one axis of
            most values, the rest of their pose zero.
    """
    chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:_ALONG]
    box = space.in_pixels(*data.images.shape[-2:])
    box.check_counts(grid.counts)
    values = {
        axis.name: axis.spread(count).float().numpy()
        for axis, count in zip(box.axes, grid.counts, strict=True)
    }
    shown = Shown(
        dataset=data_name,
        split=split,
        classes=data.classes,
        data_digest=digests_of(data, split),
        images=F.pad(data.images[chosen[:explored]].cpu(), [canvas] * 4).numpy(),
        canvas=canvas,
        labels=data.labels[chosen].cpu().numpy(),
        places=chosen.numpy(),
        space=box,
        grid=values,
        along=max(values, key=lambda name: len(values[name])),
    )
    check_shown(shown)
    return shown


def keep(folder: Path, subject: Subject, shown: Shown) -> Path:
    """Ask a model about the shown images, save its answers beside others, and give the file."""
    return write_saved(folder, shown, _saved(subject, shown))


def _saved(subject: Subject, shown: Shown) -> SavedModel:
    evaluation, record = subject.evaluation, subject.record
    attack, grid = grid_among(evaluation.attacks)
    few = len(shown.images)
    over_grid = _answers(subject, shown, few, shown.poses())
    as_it_is = _answers(subject, shown, few, shown.space.zeros(1))
    along = _answers(subject, shown, len(shown.labels), shown.poses_along())
    return SavedModel(
        name=subject.name,
        method=None if record is None else record.method,
        seed=None if record is None or record.is_guest else record.seed,
        attack=attack,
        measured=_measured(evaluation),
        record=None if record is None else record_id(record),
        origin=_origin(subject.device),
        predicted=_classes(over_grid.predicted, evaluation).reshape(-1, *grid.counts),
        confidence=_in_255ths(over_grid.confidence).reshape(-1, *grid.counts),
        natural=_classes(as_it_is.predicted, evaluation)[:, 0],
        natural_confidence=_in_255ths(as_it_is.confidence)[:, 0],
        worst=over_grid.worst.numpy(),
        predicted_along=_classes(along.predicted, evaluation),
        natural_correct=evaluation.natural_correct.numpy(),
        grid_correct=evaluation.attacks[attack].correct.numpy(),
    )


def _answers(subject: Subject, shown: Shown, count: int, poses: Pose) -> Answers:
    """Ask about the first so many of the shown places."""
    chosen = subject.data.images[torch.as_tensor(shown.places[:count])].cpu()
    images = F.pad(chosen, [shown.canvas] * 4).float() / 255
    labels = torch.as_tensor(shown.labels[:count])
    return answers(subject.model, images, labels, poses, device=subject.device)


def _classes(predicted: Tensor, evaluation: Evaluation) -> np.ndarray[Any, Any]:
    """In as few bytes as the largest number of a class needs."""
    return predicted.numpy().astype(np.min_scalar_type(evaluation.classes - 1))


def _in_255ths(confidence: Tensor) -> np.ndarray[Any, Any]:
    return (255 * confidence).round().to(torch.uint8).numpy()


def _measured(evaluation: Evaluation) -> dict[str, float]:
    attacks = {name: result.accuracy for name, result in evaluation.attacks.items()}
    return {"nat": evaluation.natural_accuracy} | attacks


def _origin(device: torch.device | str) -> dict[str, Any]:
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    return asdict(origin_on(device)) | {"finished": finished}
