"""The answers about a chunk that is under way, so that one who is stopped asks none of them again.

A search is a function of the answers that it gets. So it need not be kept where it stopped: it is
made once more, and what it asked before is answered from here, to the last bit.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from upright.evaluation.seen import SeenClasses
from upright.pose import Pose
from upright.tiles import Answer

__all__ = ["Asked", "Begun", "Journal"]

EVERY_SECONDS = 30.0
"""How long answers wait until they are written."""


@dataclass
class Asked:
    """One question of a search, some poses of some images, with the answers that came so far."""

    values: Tensor
    """float64, tries x images; NaN where there is no answer yet."""
    classes: Tensor | None = None
    """int64: of the largest logit, where they are kept."""
    slopes: Tensor | None = None
    """By the pose, tries x images x axes, where they were asked for."""
    seconds: float = 0.0

    def answer(self, tries: slice, rows: slice) -> Answer | None:
        """Give the answers of one tile; None where one of them is missing."""
        value = self.values[tries, rows]
        if value.isnan().any():
            return None
        return Answer(value, None if self.slopes is None else self.slopes[tries, rows])


@dataclass
class Begun:
    """What is known of a chunk that is under way."""

    checksum: int
    """Of its images and labels."""
    asked: dict[str, Asked] = field(default_factory=dict)
    """By a digest of the poses and of which images they are for."""
    hardest: dict[str, Tensor] = field(default_factory=dict)
    """By attack: how hard poses were found before, which decides the order in which they come."""

    @property
    def answers(self) -> int:
        return sum(int((~each.values.isnan()).sum()) for each in self.asked.values())


@dataclass
class Journal:
    """Notes the answers about one chunk, hands them over from time to time, and remembers them."""

    begun: Begun
    write: Callable[[], None]
    earlier_seconds: float = 0.0
    """What the answers took that were remembered."""
    _since: float = field(default_factory=lambda: time.monotonic(), init=False)
    _noted: list[tuple[Asked, slice, slice, Answer, Tensor | None]] = field(
        default_factory=list, init=False
    )

    def call(
        self, pose: Pose, places: Tensor | None, seen: SeenClasses | None, device: torch.device
    ) -> _Call:
        """Begin a question: poses for images of these places, on a device."""
        assert places is not None  # of every image that is measured
        kinds = f"{seen is not None} {_wants_gradient(pose)}"
        key = _digest(pose.values, places, kinds)
        asked = self.begun.asked.get(key)
        if asked is None:
            tries = math.prod(pose.shape[:-1])
            asked = Asked(torch.full((tries, len(places)), math.nan, dtype=torch.float64))
            self.begun.asked[key] = asked
        self.earlier_seconds += asked.seconds
        return _Call(self, asked, device, seen)

    def note(
        self, asked: Asked, tries: slice, rows: slice, answer: Answer, classes: Tensor | None
    ) -> None:
        """Note answers where they are, and bring them over when it is time: a copy waits."""
        self._noted.append((asked, tries, rows, answer, classes))
        if time.monotonic() - self._since >= EVERY_SECONDS:
            self.save()

    def save(self) -> None:
        """Hand over all that was noted."""
        self._bring_over()
        self.write()
        self._since = time.monotonic()

    def _bring_over(self) -> None:
        for asked, tries, rows, answer, classes in self._noted:
            asked.values[tries, rows] = answer.value.cpu()
            if classes is not None:
                if asked.classes is None:
                    asked.classes = torch.full(asked.values.shape, -1)
                asked.classes[tries, rows] = classes.cpu().reshape(answer.value.shape)
            if answer.slope is not None:
                slope = answer.slope.cpu()
                if asked.slopes is None:
                    asked.slopes = slope.new_zeros(*asked.values.shape, slope.shape[-1])
                asked.slopes[tries, rows] = slope
        self._noted.clear()


@dataclass
class _Call:
    """The memory (see ``tiles.Memory``) of one question."""

    journal: Journal
    asked: Asked
    device: torch.device
    seen: SeenClasses | None
    _began: float = field(default_factory=lambda: time.perf_counter(), init=False)
    _before: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._before = self.asked.seconds

    def recall(self, tries: slice, rows: slice) -> Answer | None:
        """Give what was answered before, its classes among those seen."""
        found = self.asked.answer(tries, rows)
        if found is None:
            return None
        # Copies: answers that are brought over later change what is noted in its place.
        slope = None if found.slope is None else found.slope.to(self.device, copy=True)
        answer = Answer(found.value.to(self.device, copy=True), slope)
        if self.seen is not None and self.asked.classes is not None:
            classes = self.asked.classes[tries, rows].to(self.device)
            row = torch.arange(rows.start, rows.stop, device=self.device).repeat(len(classes))
            self.seen.answers.append((row, answer.value.flatten(), classes.flatten()))
        return answer

    def keep(self, tries: slice, rows: slice, answer: Answer) -> None:
        """Note what was answered now; its classes were seen last."""
        self.asked.seconds = self._before + time.perf_counter() - self._began
        classes = None if self.seen is None else self.seen.answers[-1][2]
        self.journal.note(self.asked, tries, rows, answer, classes)


def _wants_gradient(pose: Pose) -> bool:
    return torch.is_grad_enabled() and pose.values.requires_grad


def _digest(values: Tensor, places: Tensor, kinds: str) -> str:
    digest = hashlib.blake2b(f"{kinds} {tuple(values.shape)}".encode(), digest_size=12)
    for part in (values, places):
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
