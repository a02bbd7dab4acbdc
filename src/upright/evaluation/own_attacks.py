"""What attacks give back. That of a user's own is looked at before it counts.

An attack is trusted with which poses are tried, and with which of them is the worst. One that
leaves the box, or reports numbers of its own in place of the score's, would give an accuracy that
nobody doubts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from upright.attacks import Attack, CandidateSearch, Rounds, RoundSearch, Score, WorstCase
from upright.attacks.base import check_worst_case
from upright.attacks.given import check_poses
from upright.pose import Pose
from upright.registry import is_ours
from upright.space import Space

__all__ = ["candidates_of", "found_by", "rounds_of"]

_ROUNDED = 1e-3
"""Scores are float64, and up to a thousand: so much a float32 may differ, and more."""


def candidates_of(
    attack: CandidateSearch, space: Space, count: int, *, generator: torch.Generator
) -> Pose:
    """Let an attack list its poses for so many images."""
    poses = attack.candidates(space, count, generator=generator)
    if not is_ours(type(attack)):
        wide = 1 if attack.shared else count
        check_poses(f"candidates of {attack}", poses, space, f"(m, {wide})", (len(poses), wide))
    return poses


def rounds_of(
    attack: RoundSearch, space: Space, count: int, *, generator: torch.Generator
) -> Rounds:
    """Let an attack begin to search for the worst pose of each of so many images."""
    rounds = attack.begin(space, count, generator=generator)
    return rounds if is_ours(type(attack)) else _Watched(attack, rounds, space, count)


def found_by(
    attack: Attack, score: Score, space: Space, count: int, *, generator: torch.Generator
) -> WorstCase:
    """Let an attack search for the worst pose of each of so many images."""
    if is_ours(type(attack)):
        return attack.search(score, space, count, generator=generator)
    said, who = _Said(), f"search of {attack}"

    def heard(pose: Pose) -> Tensor:
        values = score(pose)
        said.note(pose, values)
        return values

    found = attack.search(heard, space, count, generator=generator)
    _check_found(who, found, space, count, said)
    return found


@dataclass(frozen=True)
class _Said:
    """What a score has said of each image, tries x images, and at which poses."""

    poses: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def note(self, pose: Pose, scores: Tensor) -> None:
        values = scores.detach().reshape(-1, scores.shape[-1]).float()
        poses = pose.values.detach().to(values, copy=True)  # an attack may go on writing there
        poses = poses.reshape(-1, *poses.shape[-2:]).expand(*values.shape, -1)
        self.poses.append(poses)
        self.values.append(values)

    def restrict(self, rows: Tensor) -> _Said:
        def of_rows(kept: list[Tensor]) -> list[Tensor]:
            return [each[:, rows.to(each.device)] for each in kept]

        return _Said(of_rows(self.poses), of_rows(self.values))

    def has(self, found: WorstCase, *, there: bool) -> bool:
        """Whether the scores, one for each image, are among them, if in fewer digits.

        ``there``: at the very poses that were found.
        """
        if not self.values or found.score.shape != self.values[0].shape[1:]:
            return False
        poses, values = torch.cat(self.poses), torch.cat(self.values)
        same = torch.isclose(values, found.score.detach().to(values), rtol=0, atol=_ROUNDED)
        if there:
            same &= torch.isclose(poses, found.pose.values.detach().to(poses), atol=1e-5).all(-1)
        return bool(same.any(0).all())


@dataclass(frozen=True)
class _Watched(Rounds):
    """A search in rounds whose proposals, and whose end, are looked at."""

    attack: RoundSearch
    rounds: Rounds
    space: Space
    count: int
    said: _Said = field(default_factory=_Said)
    asked: list[Pose] = field(default_factory=list)
    """What was proposed, and is not answered yet."""

    def propose(self) -> Pose | None:
        poses = self.rounds.propose()
        if poses is not None:
            shape = (len(poses), self.count)
            check_poses(f"propose of {self.attack}", poses, self.space, f"(k, {self.count})", shape)
            self.asked[:] = [poses.like(poses.values.clone())]
        return poses

    def learn(self, scores: Tensor) -> None:
        self.said.note(self.asked.pop(), scores)
        self.rounds.learn(scores)

    def restrict(self, rows: Tensor) -> Rounds:
        rounds, said = self.rounds.restrict(rows), self.said.restrict(rows)
        return replace(self, rounds=rounds, count=len(rows), said=said)

    def worst(self) -> WorstCase:
        found = self.rounds.worst()
        _check_found(f"worst of {self.attack}", found, self.space, self.count, self.said)
        return found

    def ceiling(self) -> Tensor | None:
        return self.rounds.ceiling()


def _check_found(who: str, found: WorstCase, space: Space, count: int, said: _Said) -> None:
    check_worst_case(who, found)
    check_poses(who, found.pose, space, f"({count},)", (count,))
    if not said.has(found, there=False):
        raise ValueError(
            f"{who} reports scores that `score` gave at no pose; let WorstCase have the values of "
            "`score` at its poses"
        )
    if not said.has(found, there=True):
        raise ValueError(
            f"{who} reports scores that `score` gave at other poses than it reports; let WorstCase "
            "have the values of `score` at its very poses"
        )
