"""Attacks of a user's own, as they are written: with faults, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from upright import Attack, CandidateSearch, Pose, Score, Space, WorstCase, evaluate
from upright.attacks import Rounds, RoundSearch, pick_worst, worse_of
from upright.evaluation.question import named_attacks
from upright.warp import warp

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
        pose, other = found.pose, space.sample(count, generator=generator)
        far = pose.like(100 * pose.values)
        faults: dict[str, Callable[[], object]] = {
            "far": lambda: WorstCase(far, score(far), 2 * count),
            "of outside": lambda: WorstCase(pose, score(far).maximum(found.score), 2 * count),
            "some": lambda: WorstCase(pose[:2], found.score[:2], count),
            "own number": lambda: WorstCase(pose, torch.zeros(count), count),
            "mean": lambda: WorstCase(pose, _mean_of(score, space, count, generator), 21 * count),
            "of another": lambda: WorstCase(pose, score(other), 2 * count),
            "few scores": lambda: WorstCase(pose, found.score[:2], count),
            "nothing": lambda: None,
        }
        return faults[self.fault]()  # type: ignore[return-value]


def _mean_of(score: Score, space: Space, count: int, generator: torch.Generator) -> Tensor:
    """Of twenty poses: it lies among what `score` gave, and is nothing that it gave."""
    return score(space.sample(20, count, generator=generator)).mean(0)


@dataclass(frozen=True)
class InRounds(RoundSearch):
    """Two rounds of three random poses, and a fault."""

    fault: str = ""

    def __str__(self) -> str:
        return "in-rounds"

    @property
    def passes_per_image(self) -> int:
        return 6

    def begin(self, space: Space, count: int, *, generator: torch.Generator) -> Rounds:
        asked = [space.sample(3, count, generator=generator) for _ in range(2)]
        if self.fault == "far":
            asked[1] = asked[1].like(100 * asked[1].values)
        return TwoRounds(asked, self.fault)


@dataclass
class TwoRounds(Rounds):
    asked: list[Pose]
    fault: str
    told: tuple[Tensor, ...] = ()

    def propose(self) -> Pose | None:
        if len(self.told) == 2:
            return None
        poses = self.asked[len(self.told)]
        return poses[:, :1] if self.fault == "narrow" else poses

    def learn(self, scores: Tensor) -> None:
        self.told = (*self.told, scores)

    def restrict(self, rows: Tensor) -> Rounds:
        told = tuple(each[:, rows] for each in self.told)
        return TwoRounds([each[:, rows] for each in self.asked], self.fault, told)

    def worst(self) -> WorstCase:
        found = worse_of(*map(pick_worst, self.asked, self.told))
        return replace(found, score=found.score + 1) if self.fault == "own number" else found


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


class InPlace(Once):
    """Writes each try over the last, and probes where no pose may be."""

    @property
    def passes_per_image(self) -> int:
        return 4

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        pose = space.zeros(count)
        found = WorstCase(pose.like(pose.values.clone()), score(pose), count)
        for _ in range(3):
            pose.values.copy_(space.sample(count, generator=generator).values)
            score(pose.like(3 * pose.values))
            found = worse_of(found, WorstCase(pose.like(pose.values.clone()), score(pose), count))
        return found


def test_an_attack_may_write_into_its_poses_and_look_outside_of_the_space() -> None:
    found = evaluate(network(), (IMAGES, LABELS), space=SPACE, attacks=[InPlace()])
    assert found.attacks["once"].accuracy < found.natural_accuracy


@pytest.mark.parametrize("only_accuracy", [False, True])
@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (Faulty("far"), r"search of once gives dx .*, which lies outside .*; space\.project"),
        (Faulty("of outside"), "search of once reports scores that `score` gave at other poses"),
        (Faulty("of another"), "search of once reports scores that `score` gave at other poses"),
        (Faulty("some"), r"search of once gives poses of shape \(2,\), but \(\d+,\) is asked"),
        (Faulty("own number"), "search of once reports scores that `score` gave at no pose"),
        (Faulty("mean"), "search of once reports scores that `score` gave at no pose"),
        (InRounds("far"), r"propose of in-rounds gives dx .*, which lies outside"),
        (InRounds("narrow"), r"propose of in-rounds gives poses of shape \(3, 1\), but \(k, \d+\)"),
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


def test_rounds_of_ones_own_count_where_they_are_as_they_should_be() -> None:
    data = (IMAGES[:40], LABELS[:40])
    found = evaluate(network(), data, attacks=[InRounds()], space=SPACE)
    fooled = evaluate(network(), data, attacks=[InRounds()], space=SPACE, only_accuracy=True)
    ours = found.attacks["in-rounds"]
    assert fooled.attacks["in-rounds"].correct.equal(ours.correct)
    moved = warp(data[0], ours.worst_pose)
    losses = nn.functional.cross_entropy(network()(moved), data[1], reduction="none")
    torch.testing.assert_close(ours.worst_loss.float(), losses, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="worst of in-rounds reports scores that `score` gave at"):
        evaluate(network(), data, attacks=[InRounds("own number")], space=SPACE)


class Plain(Once):
    """One that says its name alone, and holds whatever it was given."""

    def __init__(self, held: object) -> None:
        self.held = held


@dataclass(frozen=True)
class Holding(Once):
    held: object


def twice() -> Callable[[], None]:
    return lambda: None


@pytest.mark.parametrize("kind", [Plain, Holding])
@pytest.mark.parametrize(
    ("held", "alike", "other"),
    [
        (3, 3, 50),
        ((object(), 3), (object(), 3), (object(), 50)),
        (twice(), twice(), 0),
        (torch.zeros(4000), torch.zeros(4000), torch.eye(4000)[2000]),
        ({"a": [np.zeros(2)]}, {"a": [np.zeros(2)]}, {"a": [np.full(2, 1e-9)]}),
        (np.array(["a", "b"])[::-1], np.array(["b", "a"]), np.array(["b", "c"])),
        (np.array([None, "a"]), np.array([None, "a"]), np.array([None, "b"])),
        (torch.eye(3).to_sparse(), torch.eye(3).to_sparse(), (torch.eye(3) + 1e-6).to_sparse()),
        (Pose.zeros(2), Pose.zeros(2), Pose(torch.full((2, 3), 1e-6))),
        (network(), network(), nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))),
    ],
)
def test_a_state_belongs_to_an_attack_with_all_that_it_holds(
    kind: type, held: object, alike: object, other: object, tmp_path: Path
) -> None:
    def ask(held: object) -> Tensor:
        found = evaluate(
            network(), (IMAGES, LABELS), attacks=[kind(held)], space=SPACE, state=tmp_path / "s"
        )
        return found.attacks["once"].correct

    assert ask(held).equal(ask(alike))
    with pytest.raises(ValueError, match="belongs to another evaluation"):
        ask(other)


@dataclass(frozen=True)
class Listed(CandidateSearch):
    """Poses of a list: two of them cannot be compared by ``==``."""

    name: str
    poses: Tensor

    def __str__(self) -> str:
        return self.name

    @property
    def passes_per_image(self) -> int:
        return len(self.poses)

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        del generator
        return space.zeros(1).like(self.poses)[:, None].expand(-1, count)


@pytest.mark.parametrize("count", [2, 3])
def test_attacks_that_hold_arrays_are_told_apart(count: int) -> None:
    one, other = Listed("one", torch.zeros(2, 3)), Listed("other", torch.zeros(count, 3))
    assert list(named_attacks([one, other])) == ["one", "other"]
    assert list(named_attacks([one, Listed("one", torch.zeros(2, 3))])) == ["one"]
    with pytest.raises(ValueError, match="two attacks are called 'one'"):
        named_attacks([one, Listed("one", torch.ones(2, 3))])


def test_a_state_is_continued_though_the_attack_has_no_text_of_its_own(tmp_path: Path) -> None:
    found = [
        evaluate(network(), (IMAGES, LABELS), attacks=[Once()], space=SPACE, state=tmp_path / "s")
        for _ in range(2)
    ]
    assert found[0].attacks["once"].correct.equal(found[1].attacks["once"].correct)


def test_poses_that_all_share_are_the_same_for_all() -> None:
    with pytest.raises(ValueError, match="shared says that all images share its poses, but draws"):
        evaluate(network(), (IMAGES, LABELS), attacks=[SharedButRandom()], space=SPACE)
