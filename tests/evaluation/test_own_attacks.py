"""Attacks of a user's own, as they are written: with faults, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from upright import Attack, CandidateSearch, Pose, Score, Space, WorstCase, evaluate

IMAGES = torch.rand(600, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(600) % 4
SPACE = "shift(2px) rotate(10)"


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)).eval()


class Once(Attack):
    """One random pose, by a class that has no text of its own but its name."""

    def __str__(self) -> str:
        return "once"

    @property
    def passes_per_image(self) -> int:
        return 1

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        poses = space.sample(count, generator=generator)
        return WorstCase(poses, score(poses), count)


@dataclass(frozen=True)
class SharedButRandom(CandidateSearch):
    shared: ClassVar[bool] = True

    def __str__(self) -> str:
        return "shared"

    @property
    def passes_per_image(self) -> int:
        return 4

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        del count
        return space.sample(4, 1, generator=generator)


@dataclass(frozen=True)
class Faulty(Once):
    """Searches as it should, and then gives back something else."""

    fault: str

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        found = super().search(score, space, count, generator=generator)
        far = found.pose.like(100 * found.pose.values)
        faults: dict[str, object] = {
            "far": WorstCase(far, score(far), 2 * count),
            "some": WorstCase(found.pose[:2], found.score[:2], count),
            "own number": WorstCase(found.pose, torch.zeros(count), count),
            "few scores": WorstCase(found.pose, found.score[:2], count),
            "nothing": None,
        }
        return faults[self.fault]  # type: ignore[return-value]


@dataclass(frozen=True)
class FaultyList(CandidateSearch):
    far: bool

    def __str__(self) -> str:
        return "listed"

    @property
    def passes_per_image(self) -> int:
        return 3

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        poses = space.sample(3, count if self.far else 2, generator=generator)
        return poses.like(100 * poses.values) if self.far else poses


@pytest.mark.parametrize("only_accuracy", [False, True])
@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (Faulty("far"), r"search of once gives dx .*, which lies outside .*; space\.project"),
        (Faulty("some"), r"search of once gives poses of shape \(2,\), but \(\d+,\) is asked"),
        (Faulty("own number"), "search of once reports scores that `score` gave at no pose"),
        (Faulty("few scores"), "search of once reports scores that `score` gave at no pose"),
        (Faulty("nothing"), "search of once gives NoneType; let it return a WorstCase"),
        (FaultyList(far=True), "candidates of listed gives dx .*, which lies outside"),
        (FaultyList(far=False), r"candidates of listed gives poses of shape \(3, 2\), but \(m, "),
    ],
)
def test_what_cannot_be_the_worst_pose_is_refused(
    attack: Attack, message: str, only_accuracy: bool
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(
            network(), (IMAGES, LABELS), attacks=[attack], space=SPACE, only_accuracy=only_accuracy
        )


def test_a_state_is_continued_though_the_attack_has_no_text_of_its_own(tmp_path: Path) -> None:
    found = [
        evaluate(network(), (IMAGES, LABELS), attacks=[Once()], space=SPACE, state=tmp_path / "s")
        for _ in range(2)
    ]
    assert found[0].attacks["once"].correct.equal(found[1].attacks["once"].correct)


def test_poses_that_all_share_are_the_same_for_all() -> None:
    with pytest.raises(ValueError, match="shared says that all images share its poses, but draws"):
        evaluate(network(), (IMAGES, LABELS), attacks=[SharedButRandom()], space=SPACE)
