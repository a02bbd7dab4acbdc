"""What an attack is: a search of a space for the pose of highest score."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from upright.attacks.gradient import scored
from upright.devices import sent
from upright.pose import Pose
from upright.registry import Registry
from upright.space import Space

__all__ = [
    "ATTACKS",
    "Attack",
    "CandidateSearch",
    "RoundSearch",
    "Rounds",
    "Score",
    "WorstCase",
    "attack_name",
    "check_worst_case",
    "parse_attack",
    "pick_worst",
    "worse_of",
]

Score = Callable[[Pose], Tensor]
"""Maps poses to one value for each image, higher is worse.

A pose of shape (N,) gives N values; one of shape (k, N) or (m, 1) gives k x N or m x N: k poses of
its own for each of N images, or m poses that all images share.
"""


@dataclass(frozen=True, eq=False)
class WorstCase:
    """What an attack found: for each image a pose and its score; and what the search cost."""

    pose: Pose
    score: Tensor
    forward_passes: int
    """Images sent through the model, all tries counted."""


def check_worst_case(who: str, found: object) -> None:
    """Check that it is one."""
    if not isinstance(found, WorstCase):
        raise ValueError(
            f"{who} gives {type(found).__name__}; let it return a WorstCase of poses, their scores "
            "and the number of forward passes"
        )


class Attack(abc.ABC):
    """Searches a space for the worst pose of each image.

    An attack sees the score and nothing else: neither the labels, nor the model, nor the penalty.
    Evaluation, adversarial training and every penalty share every attack in that way. Its ``str``
    is its name, in results and as a seed of its draws.
    """

    @classmethod
    def options(cls) -> Mapping[str, str]:
        """Say which fields its name leaves out, by the names that they have in the notation."""
        return {}

    @property
    @abc.abstractmethod
    def passes_per_image(self) -> int:
        """Forward passes that a full search spends on one image."""

    @property
    def climbs(self) -> bool:
        """Whether it may ask for gradients of scores."""
        return True

    @property
    def passes_of_worst_pose(self) -> int:
        """Forward passes that ``worst_pose`` spends on one image."""
        return self.passes_per_image

    def check_space(self, space: Space) -> None:  # noqa: B027
        """Say what is wrong where this attack cannot search a space, before any model is asked."""

    @abc.abstractmethod
    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        """Find the worst pose in ``space`` for each of ``count`` images."""

    def worst_pose(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> Pose:
        """Find the worst poses without their scores, which some attacks can do in fewer passes."""
        found = self.search(score, space, count, generator=generator)
        check_worst_case(f"search of {self}", found)
        return found.pose


class CandidateSearch(Attack):
    """An attack that lists its candidates before it sees any score, and takes the worst of them.

    Callers may score the candidates in any order, stop early, or let one list serve two scores.
    """

    shared: ClassVar[bool] = False
    """Whether all images try the same candidates, as on a grid."""

    @property
    def climbs(self) -> bool:
        return False

    @abc.abstractmethod
    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        """List the poses to try: (m, 1) where they are ``shared``, else (k, count)."""

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        poses = self.candidates(space, count, generator=generator)
        return pick_worst(poses, score(poses))


class Rounds(abc.ABC):
    """A search under way: it proposes poses, learns their scores, and so on until it has no more.

    What it proposes for an image depends on the scores of that image alone.
    """

    @abc.abstractmethod
    def propose(self) -> Pose | None:
        """Give the poses to try next, (k, images); None where the search is over.

        Where their values require a gradient, the scores are to have one.
        """

    @abc.abstractmethod
    def learn(self, scores: Tensor) -> None:
        """Take in the scores of what was proposed last, k x images."""

    @abc.abstractmethod
    def restrict(self, rows: Tensor) -> Rounds:
        """Go on with some of the images only."""

    @abc.abstractmethod
    def worst(self) -> WorstCase:
        """Give the worst of all that was tried."""

    def ceiling(self) -> Tensor | None:
        """Estimate how high the score of each image is anywhere, by the slopes seen so far.

        It is no bound. None where a search tells nothing of that.
        """
        return None


class RoundSearch(Attack):
    """An attack whose next candidates depend on the scores of those before.

    Callers may leave out images between rounds, such as those that are fooled.
    """

    @property
    def climbs(self) -> bool:
        return False

    @abc.abstractmethod
    def begin(self, space: Space, count: int, *, generator: torch.Generator) -> Rounds:
        """Begin a search for ``count`` images."""

    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        rounds = self.begin(space, count, generator=generator)
        while (poses := rounds.propose()) is not None:
            rounds.learn(scored(score, poses))
        return rounds.worst()


def pick_worst(poses: Pose, scores: Tensor) -> WorstCase:
    """Take the first candidate of highest score for each image, from scores of tries x images."""
    highest, best = scores.max(0, keepdim=True)
    columns = poses.values.shape[-1]
    tried = sent(poses.values, scores.device).expand(*scores.shape, columns)
    worst = tried.gather(0, best[..., None].expand(-1, -1, columns))[0]
    return WorstCase(poses.like(worst), highest[0], scores.numel())


def worse_of(first: WorstCase, second: WorstCase) -> WorstCase:
    """Of two finds the worse, image by image; of equal ones the first. Their passes add up."""
    rises = second.score > first.score
    here, there = (found.pose.values.to(rises.device) for found in (first, second))
    pose = first.pose.like(torch.where(rises[:, None], there, here))
    score = torch.where(rises, second.score, first.score)
    return WorstCase(pose, score, first.forward_passes + second.forward_passes)


Build = Callable[..., Attack]

ATTACKS: Registry[Build] = Registry("attack", any_case=True)
"""What makes attacks of their names."""


def attack_name(form: str, pattern: str, *, about: str = "") -> Callable[[Build], Build]:
    """Teach ``parse_attack`` a name: what ``pattern`` captures goes to the decorated function.

    ``form`` is how messages and help write the name, ``about`` what help says of it. Upper and
    lower case are the same.
    """
    return ATTACKS.register(form, pattern, about=about)


def parse_attack(name: str) -> Attack:
    """Make an attack from its name, in any case: ``grid-775``, ``wo-10``, ``s-pgd`` and so on.

    >>> parse_attack("grid-775"), parse_attack("Wo-10")
    (GridSearch(counts=(5, 5, 31)), RandomSearch(tries=10))
    """
    found = ATTACKS.find(name.strip())
    return found.value(*found.groups)
