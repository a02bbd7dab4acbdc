"""Which images of the data an evaluation visits, in which order, and what is drawn for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from upright.attacks import Attack
from upright.evaluation.batches import count_by_number
from upright.evaluation.question import Question
from upright.evaluation.stream import Chunk, Data, chunk_size, chunks, count_images, cuts
from upright.uniform import ByPlace

__all__ = ["Visits"]


@dataclass(frozen=True, eq=False)
class Visits:
    """All images up to the limit, in turn; or some of them, in a random order."""

    data: Data
    question: Question
    """With the size of the sample, where it is one."""
    places: Tensor | None = None
    """In the order of the visits; None for all in turn."""
    of_images: int | None = None
    """Out of how many they were drawn."""
    first: int = 0
    """The place of the first image, of data that are a piece of others."""

    @staticmethod
    def of(data: Data, question: Question, *, random: bool, first: int = 0) -> Visits:
        if question.sample is None and not random:
            return Visits(data, question, first=first)
        count = count_by_number(data)
        count = count if question.limit is None else min(count, question.limit)
        asked = replace(question, sample=min(question.sample or count, count) or None)
        return Visits(data, asked, asked.places(count), count, first)

    @property
    def count(self) -> int | None:
        if self.places is None:
            return count_images(self.data, self.question.limit)
        return len(self.places)

    @property
    def cut_at(self) -> int | None:
        """The limit, where the data go on behind it."""
        limit = self.question.limit
        return limit if self.places is None and cuts(self.data, limit) else None

    def chunks(self) -> Iterator[Chunk]:
        if self.places is None:
            return chunks(self.data, self.question.limit)
        return chunks(self.data, places=self.places, passes=self.question.passes_per_image)

    def places_of(self, chunk: Chunk) -> Tensor:
        """Where the images of a chunk lie in the data."""
        here = torch.arange(chunk.start, chunk.start + len(chunk))
        return here + self.first if self.places is None else self.places[here]

    def generator(self, attack: Attack, chunk: Chunk) -> torch.Generator:
        """Give an attack's draws for a chunk: those of a run over all data, whatever is visited."""
        begin = partial(self.question.generator, attack)
        if self.places is None and not self.first:
            return begin(chunk.start)
        size, places = chunk_size(chunk.images), self.places_of(chunk)
        return ByPlace.of(places, of_images=self.of_images, size=size, begin=begin)
