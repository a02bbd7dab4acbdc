"""The draws that ``evaluate`` makes for some images in the midst of the data.

What it draws for an image depends on the image's place. Whoever gets the data in pieces gets those
very draws from here, however the pieces are cut: each attack draws for all images of the chunk up
to the last that is asked for, and only those are scored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.attacks import Attack, CandidateSearch, Rounds, RoundSearch, Score, WorstCase
from upright.evaluation.question import Question
from upright.evaluation.stream import chunk_size
from upright.pose import Pose
from upright.space import Space

__all__ = ["Place", "attack_at", "places"]


@dataclass(frozen=True)
class Place:
    """Where consecutive images lie: in which chunk, and after how many images of it."""

    chunk: int
    """Where the chunk starts in the data."""
    before: int
    count: int


def places(first: int, images: Tensor) -> Iterator[Place]:
    """Cut a batch of images, the first of which has this place in the data, at chunks."""
    size, last = chunk_size(images), first + len(images)
    while first < last:
        before = first % size
        place = Place(first - before, before, min(size - before, last - first))
        yield place
        first += place.count


def attack_at(attack: Attack, place: Place, question: Question) -> Attack:
    """Give an attack that draws as ``evaluate`` with this question does for images at a place.

    It holds of attacks that draw image by image, as all of this package do.
    """
    if isinstance(attack, RoundSearch):
        return _PlacedRounds(attack, place, question)
    if not isinstance(attack, CandidateSearch):
        return _PlacedSearch(attack, place, question)
    return attack if attack.shared else _PlacedCandidates(attack, place, question)


@dataclass(frozen=True)
class _Placed(Attack):
    """An attack at a place: its name, its passes, and the draws that are meant for there."""

    attack: Attack
    place: Place
    question: Question

    def __str__(self) -> str:
        return str(self.attack)

    @property
    def passes_per_image(self) -> int:
        return self.attack.passes_per_image

    @property
    def climbs(self) -> bool:
        return self.attack.climbs

    def _draws(self) -> torch.Generator:
        return self.question.generator(self.attack, self.place.chunk)


@dataclass(frozen=True)
class _PlacedCandidates(_Placed, CandidateSearch):
    attack: CandidateSearch

    def candidates(self, space: Space, count: int, *, generator: torch.Generator) -> Pose:
        del generator
        before = self.place.before
        listed = self.attack.candidates(space, before + count, generator=self._draws())
        return listed[:, before:]


@dataclass(frozen=True)
class _PlacedRounds(_Placed, RoundSearch):
    attack: RoundSearch

    def begin(self, space: Space, count: int, *, generator: torch.Generator) -> Rounds:
        del generator
        before = self.place.before
        rounds = self.attack.begin(space, before + count, generator=self._draws())
        return rounds.restrict(torch.arange(before, before + count))


@dataclass(frozen=True)
class _PlacedSearch(_Placed):
    def search(
        self, score: Score, space: Space, count: int, *, generator: torch.Generator
    ) -> WorstCase:
        del generator
        before = self.place.before

        def of_all(pose: Pose) -> Tensor:
            """Score all images; those before this part are worth nothing, and cost nothing."""
            asked = pose if pose.shape[-1] == 1 else pose[..., before:]
            return F.pad(score(asked), (before, 0))

        found = self.attack.search(of_all, space, before + count, generator=self._draws())
        return WorstCase(found.pose[before:], found.score[before:], self.passes_per_image * count)
