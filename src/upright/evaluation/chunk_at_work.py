"""One chunk under the zero pose and under each attack: what is measured of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from upright.attacks import CandidateSearch, RoundSearch, WorstCase, pick_worst
from upright.evaluation.own_attacks import candidates_of, found_by, rounds_of
from upright.evaluation.question import Question
from upright.evaluation.rounds import drive
from upright.evaluation.score import WorstLoss, is_fooled, loss_of, or_as_it_is
from upright.evaluation.state import Piece, State
from upright.evaluation.survival import HardestFirst, has_zero, survivors
from upright.fooled import pack_bits
from upright.space import Space

__all__ = ["ChunkAtWork"]


@dataclass
class ChunkAtWork:
    """A chunk with what is asked of it, and the piece that it becomes."""

    question: Question
    score: WorstLoss
    space: Space
    kept: State
    hardest: dict[str, HardestFirst]
    piece: Piece
    natural: Tensor = field(init=False)
    """Severities of the images as they are, where they are computed."""

    def ask_as_it_is(self, labels: Tensor) -> None:
        """Ask about the images unmoved; ``labels`` lie where they came from."""
        still = self.space.zeros(1, 1)
        (self.natural,) = values = self.score.ask(still)
        self.piece.keep(natural_fooled=is_fooled(self.natural), natural_loss=loss_of(self.natural))
        self.piece.keep(labels=labels)
        self.score.check(still, values)

    def attack(self, name: str, generator: torch.Generator) -> None:
        """Ask what an attack leaves: of all it tries, or until an image is fooled."""
        attack, exact = self.question.attacks[name], not self.question.only_accuracy
        match attack:
            case CandidateSearch() if exact:
                self._try_all(name, attack, generator)
            case CandidateSearch():
                self._try_until_fooled(name, attack, generator)
            case RoundSearch():
                self._drive(name, attack, generator)
            case _:
                score, count = self.score.with_own_seen(), len(self.score.labels)
                worst = found_by(attack, score, self.space, count, generator=generator)
                self._keep_worst(name, score, worst)

    def _try_all(self, name: str, attack: CandidateSearch, generator: torch.Generator) -> None:
        """Ask at all poses; of those that all images share, note all that fool."""
        score = self.score.with_own_seen()
        poses = candidates_of(attack, self.space, len(score.labels), generator=generator)
        values = score.ask(poses)
        bits = dict[str, Tensor]()
        if attack.shared:
            bits["bits"] = pack_bits(is_fooled(values).T)
            tried = poses[:, 0].values
            if not self.kept.once(f"{name}/grid", tried).equal(tried.cpu()):
                raise ValueError(
                    f"{name} says that all images share its poses, but draws others for some; "
                    "leave out `shared`, or draw none"
                )
        self._keep_worst(name, score, pick_worst(poses, values), **bits)
        score.check(poses, values)  # not before: who looks at a value waits for it

    def _try_until_fooled(
        self, name: str, attack: CandidateSearch, generator: torch.Generator
    ) -> None:
        poses = candidates_of(attack, self.space, len(self.score.labels), generator=generator)
        hardest = self.hardest.setdefault(name, HardestFirst.guess(poses, self.space))
        fallen = self._fallen(tried=self.question.include_identity or has_zero(poses))
        self._keep(name, fooled=~survivors(self.score, poses, hardest, ~fallen))

    def _drive(self, name: str, attack: RoundSearch, generator: torch.Generator) -> None:
        leave = self.question.only_accuracy
        score = self.score.with_own_seen()
        rounds = rounds_of(attack, self.space, len(score.labels), generator=generator)
        fallen = self._fallen(tried=leave and self.question.include_identity)
        passes, top = attack.passes_per_image, self.question.top
        found = drive(score, rounds, ~fallen, passes, top=top, leave=leave)
        if found.safe is not None and found.safe_early is not None:
            self._keep(name, safe=found.safe, safe_early=found.safe_early)
        if leave:
            self._keep(name, fooled=found.fooled | fallen)
        else:
            self._keep_worst(name, score, found.rounds.worst())

    def _fallen(self, *, tried: bool) -> Tensor:
        """Which images are fooled as they are, where that is among what is tried."""
        return self.piece.arrays["natural_fooled"] & tried

    def _keep_worst(self, name: str, score: WorstLoss, worst: WorstCase, **more: Tensor) -> None:
        if self.question.include_identity:
            worst = or_as_it_is(worst, self.natural)
        value, pose = worst.score.to(self.natural.device), worst.pose.to(self.natural.device)
        if self.question.only_accuracy:
            self._keep(name, fooled=is_fooled(value))
            return
        assert score.seen is not None
        arrays = more | {"fooled": is_fooled(value), "pose": pose.values, "loss": loss_of(value)}
        self._keep(name, **arrays, **{"class": score.seen.class_at(value)})
        if (self.piece.arrays[f"{name}/class"] < 0).any():
            self._keep(name, **{"class": score.predicted(pose)})

    def _keep(self, name: str, **arrays: Tensor) -> None:
        self.piece.keep(**{f"{name}/{part}": array for part, array in arrays.items()})

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Note what work takes: seconds, and of an attack the passes."""
        began, passes = self._now(), self.score.predictor.passes
        yield
        self.piece.totals[f"{name}seconds"] = self._now() - began
        if name:
            self.piece.totals[f"{name}passes"] = self.score.predictor.passes - passes

    def _now(self) -> float:
        """The time in seconds, with what remembered answers took when they were asked for."""
        journal = self.score.journal
        return time.perf_counter() + (0.0 if journal is None else journal.earlier_seconds)
