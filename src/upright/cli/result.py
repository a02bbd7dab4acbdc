"""What was measured, as JSON."""

from __future__ import annotations

import base64
import math
from typing import Any

import torch
from torch import Tensor

from upright.cli.table import name_of
from upright.data import LabelledImages
from upright.evaluation import AttackResult, Evaluation
from upright.fooled import FooledPoses
from upright.origin import commit, hardware, versions
from upright.space import Space

__all__ = ["result_as_json"]


def result_as_json(
    evaluation: Evaluation,
    *,
    options: dict[str, Any],
    space: Space,
    data: LabelledImages,
    device: torch.device,
) -> dict[str, object]:
    """Give what was measured, and what it takes to measure it again; accuracies are fractions.

    Where the worst poses are known, ``details`` has them for each image, in the order of the data.
    """
    result = {"model": options["model"], "data": options["data"], "space": str(space)}
    result |= evaluation.summary() | {"per_class": _classes(evaluation, data.classes)}
    if all(each.worst_pose is not None for each in evaluation.attacks.values()):
        result["details"] = _details(evaluation)
    made = {"device": hardware(device), "versions": versions(), "commit": commit()}
    return result | {"options": options, "data_digest": data.digest()} | made


def _classes(evaluation: Evaluation, names: tuple[str, ...]) -> list[dict[str, object]]:
    return [
        {
            "label": each.label,
            "class": name_of(each.label, names),
            "images": each.images,
            "natural_accuracy": each.natural,
            "attacks": each.attacks,
        }
        for each in evaluation.per_class()
    ]


def _details(evaluation: Evaluation) -> dict[str, object]:
    return {
        **({} if evaluation.places is None else {"places": evaluation.places.tolist()}),
        "labels": evaluation.labels.tolist(),
        "natural_correct": evaluation.natural_correct.tolist(),
        "natural_loss": _or_null(evaluation.natural_loss),
        "attacks": {name: _worst(result) for name, result in evaluation.attacks.items()},
    }


def _worst(result: AttackResult) -> dict[str, object]:
    assert result.worst_pose is not None
    assert result.worst_loss is not None
    found: dict[str, object] = {
        "correct": result.correct.tolist(),
        "worst_pose": {
            name: result.worst_pose.values[:, column].tolist()
            for name, column in result.worst_pose.chain.column_of.items()
        },
        "worst_loss": _or_null(result.worst_loss),
    }
    if result.worst_class is not None:
        found["worst_class"] = result.worst_class.tolist()
    if result.fooled is not None:
        found["fooling_pose_count"] = result.fooled.unpack().sum(1).tolist()
        found["grid"] = result.fooled.poses.values.tolist()
        # One bit for each pose of the grid, the first in the highest, rows of whole bytes.
        bits = result.fooled.bits.numpy().tobytes()
        found["fooling_poses_base64"] = base64.b64encode(bits).decode()
        found |= _derived(result.fooled)
    return found


def _derived(fooled: FooledPoses) -> dict[str, object]:
    """What follows from fooled poses; null where nothing fools an image, or nothing is known."""
    smallest, by_size = fooled.smallest, fooled.by_size
    return {
        "smallest_pose": {
            name: _or_null(smallest.pose.values[:, column])
            for name, column in smallest.pose.chain.column_of.items()
        },
        "smallest_size": _or_null(smallest.size),
        "accuracy_by_size": {"size": by_size.at.tolist(), "accuracy": by_size.accuracy.tolist()},
        # The first is that of one pose, the last that of as many as the grid has.
        "worst_of": fooled.worst_of.accuracy.tolist(),
        "worst_of_replaced": fooled.worst_of_replaced.accuracy.tolist(),
        "consistency": None if math.isnan(fooled.consistency) else fooled.consistency,
    }


def _or_null(values: Tensor) -> list[float | None]:
    """Numbers for JSON, which knows neither NaN nor infinity."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
