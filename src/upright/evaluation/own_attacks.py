"""What attacks give back. That of a user's own is looked at before it counts.

An attack is trusted with which poses are tried, and with which of them is the worst. One that
leaves the box, or reports numbers of its own in place of the score's, would give an accuracy that
nobody doubts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upright.attacks import Attack, CandidateSearch, Score, WorstCase
from upright.pose import Pose
from upright.space import Space

__all__ = ["candidates_of", "found_by"]

_ROUNDED = 1e-3
"""Scores are float64, and up to a thousand: so much a float32 may differ, and more."""


def candidates_of(
    attack: CandidateSearch, space: Space, count: int, *, generator: torch.Generator
) -> Pose:
    """Let an attack list its poses for so many images."""
    poses = attack.candidates(space, count, generator=generator)
    if not _is_ours(attack):
        wide = 1 if attack.shared else count
        _check_poses(attack, "candidates", poses, space, f"(m, {wide})", (len(poses), wide))
    return poses


def found_by(
    attack: Attack, score: Score, space: Space, count: int, *, generator: torch.Generator
) -> WorstCase:
    """Let an attack search for the worst pose of each of so many images."""
    if _is_ours(attack):
        return attack.search(score, space, count, generator=generator)
    heard = _Heard(score)
    found = attack.search(heard, space, count, generator=generator)
    if not isinstance(found, WorstCase):
        raise ValueError(
            f"search of {attack} gives {type(found).__name__}; let it return a WorstCase of poses, "
            "their scores and the number of forward passes"
        )
    _check_poses(attack, "search", found.pose, space, f"({count},)", (count,))
    heard.check(attack, found.score)
    return found


def _is_ours(attack: Attack) -> bool:
    return type(attack).__module__.startswith("upright.")


def _check_poses(
    attack: Attack, method: str, poses: Pose, space: Space, wanted: str, shape: tuple[int, ...]
) -> None:
    if tuple(poses.shape) != shape:
        raise ValueError(
            f"{method} of {attack} gives poses of shape {tuple(poses.shape)}, but {wanted} is asked"
        )
    inside = space.contains(poses)
    if not inside.all():
        outside = poses.like(poses.values[~inside])[0]
        raise ValueError(
            f"{method} of {attack} gives {outside.in_words()}, which lies outside {space}; "
            "space.project brings poses back"
        )


@dataclass
class _Heard:
    """A score, and the least and the most that it has said of each image."""

    score: Score
    range: tuple[Tensor, Tensor] | None = None

    def __call__(self, pose: Pose) -> Tensor:
        values = self.score(pose)
        said = values.detach().reshape(-1, values.shape[-1])
        low, high = said.amin(0), said.amax(0)
        if self.range is not None:
            low, high = torch.minimum(self.range[0], low), torch.maximum(self.range[1], high)
        self.range = low, high
        return values

    def check(self, attack: Attack, reported: Tensor) -> None:
        """Check that reported scores are among those that were heard, if in fewer digits."""
        if self.range is not None and reported.shape == self.range[0].shape:
            low, high = self.range
            reported = reported.detach().to(low.device)
            if bool(((low - _ROUNDED <= reported) & (reported <= high + _ROUNDED)).all()):
                return
        raise ValueError(
            f"search of {attack} reports scores that `score` gave at no pose; let WorstCase have "
            "the values of `score` at its poses"
        )
