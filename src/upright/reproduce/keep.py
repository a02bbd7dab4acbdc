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
from upright.origin import origin_on
from upright.pose import Pose
from upright.records import Record
from upright.report.saved import SavedModel, Shown, record_id, write_saved
from upright.reproduce.record import digests_of
from upright.space import PAPER, Space

__all__ = ["Subject", "choose_shown", "grid_among", "keep"]

_TURNED = 100
"""Images whose wrong angles are drawn, as many as in the paper's figure."""


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
    space: Space = PAPER,
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
        explored: how many images get all poses of the grid. Up to 100 are turned without a shift.
    """
    chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:_TURNED]
    poses = space.in_pixels(*data.images.shape[-2:]).grid(grid.counts)
    box = poses.values.reshape(*grid.counts, 3).numpy()
    return Shown(
        dataset=data_name,
        split=split,
        classes=data.classes,
        data_digest=digests_of(data, split),
        images=F.pad(data.images[chosen[:explored]].cpu(), [canvas] * 4).numpy(),
        canvas=canvas,
        labels=data.labels[chosen].cpu().numpy(),
        places=chosen.numpy(),
        dx_px=box[:, 0, 0, 0],
        dy_px=box[0, :, 0, 1],
        angle_degrees=box[0, 0, :, 2],
    )


def keep(folder: Path, subject: Subject, shown: Shown) -> Path:
    """Ask a model about the shown images, save its answers beside others, and give the file."""
    return write_saved(folder, shown, _saved(subject, shown))


def _saved(subject: Subject, shown: Shown) -> SavedModel:
    evaluation, record = subject.evaluation, subject.record
    attack, grid = grid_among(evaluation.attacks)
    few, angles = len(shown.images), torch.as_tensor(shown.angle_degrees)
    over_grid = _answers(subject, shown, few, _grid(shown))
    as_it_is = _answers(subject, shown, few, Pose.zeros(1))
    no_shift = torch.zeros_like(angles)
    turned = _answers(
        subject, shown, len(shown.labels), Pose(torch.stack((no_shift, no_shift, angles), -1))
    )
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
        turned=_classes(turned.predicted, evaluation),
        natural_correct=evaluation.natural_correct.numpy(),
        grid_correct=evaluation.attacks[attack].correct.numpy(),
    )


def _answers(subject: Subject, shown: Shown, count: int, poses: Pose) -> Answers:
    """Ask about the first so many of the shown places."""
    chosen = subject.data.images[torch.as_tensor(shown.places[:count])].cpu()
    images = F.pad(chosen, [shown.canvas] * 4).float() / 255
    labels = torch.as_tensor(shown.labels[:count])
    return answers(subject.model, images, labels, poses, device=subject.device)


def _grid(shown: Shown) -> Pose:
    axes = (torch.as_tensor(axis) for axis in (shown.dx_px, shown.dy_px, shown.angle_degrees))
    parts = [part.flatten() for part in torch.meshgrid(*axes, indexing="ij")]
    return Pose(torch.stack(parts, -1))


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
