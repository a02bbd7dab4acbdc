"""One pass over the data of an evaluation: the model is met, and each chunk is measured."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from upright import checks
from upright.attacks import Attack, CandidateSearch, RoundSearch, pick_worst
from upright.devices import pinned, sent
from upright.evaluation.journal import Begun, Journal
from upright.evaluation.own_attacks import candidates_of, found_by
from upright.evaluation.question import Question
from upright.evaluation.rounds import Driven, drive
from upright.evaluation.score import (
    Move,
    Predictor,
    WorstLoss,
    is_fooled,
    logits_themselves,
    loss_of,
    or_as_it_is,
    severity,
)
from upright.evaluation.seen import SeenClasses
from upright.evaluation.state import Piece, State, checksum
from upright.evaluation.state_files import StateFiles
from upright.evaluation.stream import Chunk, chunk_size
from upright.evaluation.survival import HardestFirst, has_zero, survivors
from upright.evaluation.time_limit import TimeLimit
from upright.fooled import pack_bits
from upright.pose import Pose
from upright.ranks import Ranks
from upright.space import Space
from upright.tiles import Room, usual_batch
from upright.uniform import ByPlace
from upright.warp import Resampling, warp

__all__ = ["Examination", "prepared"]

_FIRST, _TWICE = 64, 16
"""Images that a model is asked about before all, and some of them once more."""
_ROUNDING = 1e-4
"""Of logits in float32 on a CPU, as a part of the largest; see docs/evaluate.md."""
_OTHER_DATA = "the state belongs to other data; remove it or name another file"


@dataclass
class Examination:
    """One pass over the data: what it asks, whom it asks, and what it found so far."""

    question: Question
    predictor: Predictor
    move: Move
    kept: State
    files: StateFiles
    classes: int = 0
    hardest: dict[str, HardestFirst] = field(default_factory=dict)
    cut_at: int | None = None
    labels_seen: set[int] = field(default_factory=set)
    places: Tensor | None = None
    """Of images in the data, in the order in which they come; None for that of the data."""
    of_images: int | None = None
    """Out of how many these were drawn."""
    first: int = 0
    """The place of the first image, where they come in the order of the data."""
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    device: torch.device | None = None
    """Where to compute; None for where the data are."""
    space: Space | None = None
    """With limits that fit the images, once there were any."""

    def unfinished(self, source: Iterator[Chunk], ranks: Ranks) -> Iterator[Chunk]:
        """Pass on the chunks still to be measured, of those that ``prepared`` gives.

        Of several ranks each gets the next one when it asks for it: none waits for a slower one.
        What one has got it measures, also beyond the time limit: no chunk before the last of those
        that are measured is left out.
        """
        known, claims = dict(self.kept.pieces), ranks.claims()
        mine, turn = -1, 0
        for chunk in source:
            if chunk.start == 0:
                self._meet_model(chunk)
            checks.check_labels(chunk.labels, len(chunk), self.classes)
            self._look_at_classes(chunk)
            piece = known.pop(chunk.start, None)
            before = piece or self.kept.begun.get(chunk.start)
            if before is not None and before.checksum != checksum(chunk):
                raise ValueError(_OTHER_DATA)
            if piece is None and turn > mine:
                if not self.time_limit.allows_more:
                    return
                mine = next(claims)
            if piece is None and turn == mine:
                with self.time_limit.at_work():
                    yield chunk
            else:
                self.predictor.advance(len(chunk) * self.question.passes_per_image)
            turn += piece is None
        if known:
            raise ValueError(_OTHER_DATA)

    def _meet_model(self, chunk: Chunk) -> None:
        """Look at the model's first answers, and set how many images it gets at once."""
        self.space = self.question.space_for(chunk.images)
        images = sent(chunk.images[:_FIRST], self._device(chunk))
        self.predictor.room = Room(self.predictor.room.batch_size or usual_batch(images))
        # Moved by nothing, which an oracle's locator does not leave at that: it too is the model.
        still = self.question.space.zeros(1)
        first = _on_canvas(images, self.question)
        _check_identity(first, still, self.question)
        look = WorstLoss(
            replace(self.predictor, advance=lambda _: None),  # shares the room
            first,
            torch.zeros(len(first), dtype=torch.int64, device=first.device),
            self.move,
            logits_themselves,
            places=self._places(chunk),
        )
        logits = look(still[None])[0]
        checks.warn_if_probabilities(logits)
        again = look.restrict(torch.arange(len(first))[:_TWICE])(still[None])[0]
        checks.warn_if_random(logits[:_TWICE], again)
        self.classes = logits.shape[1]
        checks.check_top(self.question.top, self.classes)
        first = self.kept.once("first_logits", logits.float())
        if not _alike(first, logits, roughly=self.kept.knows_model):
            raise ValueError(
                "the state belongs to another model or other data; remove it or name another file"
            )

    def _look_at_classes(self, chunk: Chunk) -> None:
        """Tell whether the images up to a limit are of more than one class, once all were seen."""
        if self.cut_at is not None and self.classes > 1:
            self.labels_seen |= set(chunk.labels.unique().tolist())
            if chunk.start + len(chunk) == self.cut_at:
                checks.warn_if_one_class(self.labels_seen, self.cut_at)

    def measure(self, chunk: Chunk) -> Piece:
        """Measure one chunk; where it is interrupted, what was answered by then is kept."""
        journal = self._journal(chunk)
        try:
            return self._measure(chunk, journal)
        except KeyboardInterrupt:
            if journal is not None:
                journal.save()
            raise

    def _measure(self, chunk: Chunk, journal: Journal | None) -> Piece:
        """Measure one chunk under the zero pose and under each attack."""
        piece, began = Piece(len(chunk)), _now(journal)
        space, device = self.question.space_for(chunk.images), self._device(chunk)
        score = WorstLoss(
            self.predictor,
            _on_canvas(sent(chunk.images, device), self.question),
            sent(chunk.labels, device).long(),
            self.move,
            partial(severity, top=self.question.top),
            None if self.question.only_accuracy else SeenClasses(),
            self._places(chunk),
            journal,
        )
        still = space.zeros(1, 1)
        (natural,) = values = score.ask(still)
        piece.keep(natural_fooled=is_fooled(natural), natural_loss=loss_of(natural))
        piece.keep(labels=chunk.labels)
        score.check(still, values)
        for name, attack in self.question.attacks.items():
            began_attack, passes = _now(journal), self.predictor.passes
            generator = self._generator(attack, chunk)
            if self.question.only_accuracy and isinstance(attack, CandidateSearch):
                poses = candidates_of(attack, space, len(chunk), generator=generator)
                hardest = self.hardest.setdefault(name, HardestFirst.guess(poses, space))
                with_zero = self.question.include_identity or has_zero(poses)
                fallen = piece.arrays["natural_fooled"] & with_zero
                piece.keep(**{f"{name}/fooled": ~survivors(score, poses, hardest, ~fallen)})
            elif self.question.only_accuracy and isinstance(attack, RoundSearch):
                fallen = piece.arrays["natural_fooled"] & self.question.include_identity
                found = self._drive(piece, name, score, space, generator, ~fallen)
                piece.keep(**{f"{name}/fooled": found.fooled | fallen})
            else:
                self._keep_worst(piece, name, score.with_own_seen(), natural, space, generator)
            piece.totals[f"{name}/passes"] = self.predictor.passes - passes
            piece.totals[f"{name}/seconds"] = _now(journal) - began_attack
        piece.totals["seconds"] = _now(journal) - began
        return piece

    def _places(self, chunk: Chunk) -> Tensor:
        """Where images lie in the data."""
        here = torch.arange(chunk.start, chunk.start + len(chunk))
        return here + self.first if self.places is None else self.places[here]

    def _device(self, chunk: Chunk) -> torch.device:
        """Where a chunk is measured."""
        return self.device or chunk.images.device

    def _generator(self, attack: Attack, chunk: Chunk) -> torch.Generator:
        """Give an attack's draws for a chunk: those of a run over all data, whatever is visited."""
        begin = partial(self.question.generator, attack)
        if self.places is None and not self.first:
            return begin(chunk.start)
        size, places = chunk_size(chunk.images), self._places(chunk)
        return ByPlace.of(places, of_images=self.of_images, size=size, begin=begin)

    def _journal(self, chunk: Chunk) -> Journal | None:
        """Note answers where there are files to keep them, and begin with those that these have."""
        if self.files.path is None:
            return None
        begun = self.kept.begun.get(chunk.start)
        if begun is None:
            rates = {name: hardest.rates.clone() for name, hardest in self.hardest.items()}
            begun = self.kept.begun[chunk.start] = Begun(checksum(chunk), hardest=rates)
        self.hardest = {name: HardestFirst(rates.clone()) for name, rates in begun.hardest.items()}
        return Journal(begun, lambda: self.files.save_begun(self.kept))

    def _keep_worst(
        self,
        piece: Piece,
        name: str,
        score: WorstLoss,
        natural: Tensor,
        space: Space,
        generator: torch.Generator,
    ) -> None:
        """Search for the worst pose of each image; of poses that all share, note all that fool."""
        attack, count = self.question.attacks[name], len(score.labels)
        asked, arrays = None, dict[str, Tensor]()
        if isinstance(attack, CandidateSearch):
            poses = candidates_of(attack, space, count, generator=generator)
            values = score.ask(poses)
            asked, worst = (poses, values), pick_worst(poses, values)
            if attack.shared:
                arrays["bits"] = pack_bits(is_fooled(values).T)
                tried = poses[:, 0].values
                if not self.kept.once(f"{name}/grid", tried).equal(tried.cpu()):
                    raise ValueError(
                        f"{name} says that all images share its poses, but draws others for some; "
                        "leave out `shared`, or draw none"
                    )
        elif isinstance(attack, RoundSearch):
            everyone = torch.ones(count, dtype=torch.bool)
            worst = self._drive(piece, name, score, space, generator, everyone).rounds.worst()
        else:
            worst = found_by(attack, score, space, count, generator=generator)
        if self.question.include_identity:
            worst = or_as_it_is(worst, natural)
        value, pose = worst.score.to(natural.device), worst.pose.to(natural.device)
        arrays["fooled"] = is_fooled(value)
        if not self.question.only_accuracy:
            arrays |= {"pose": pose.values, "loss": loss_of(value)}
        if score.seen is not None:
            arrays["class"] = score.seen.class_at(value)
        piece.keep(**{f"{name}/{part}": array for part, array in arrays.items()})
        if asked is not None:  # not before: who looks at a value waits for it
            score.check(*asked)
        if score.seen is not None and (piece.arrays[f"{name}/class"] < 0).any():
            piece.keep(**{f"{name}/class": score.predicted(pose)})

    def _drive(
        self,
        piece: Piece,
        name: str,
        score: WorstLoss,
        space: Space,
        generator: torch.Generator,
        alive: Tensor,
    ) -> Driven:
        """Search in rounds, and keep which images are safe by the slopes that were seen."""
        attack, count = self.question.attacks[name], len(score.labels)
        assert isinstance(attack, RoundSearch)
        rounds = attack.begin(space, count, generator=generator)
        passes, top, leave = attack.passes_per_image, self.question.top, self.question.only_accuracy
        found = drive(score, rounds, alive, passes, top=top, leave=leave)
        if found.safe is not None and found.safe_early is not None:
            piece.keep(**{f"{name}/safe": found.safe, f"{name}/safe_early": found.safe_early})
        return found


def prepared(source: Iterator[Chunk], device: torch.device | None) -> Generator[Chunk, None, None]:
    """Check chunks, and put them where they are copied to the device without a wait."""
    for chunk in source:
        checks.check_layout(chunk.images)
        checks.check_float_images(chunk.images)
        checks.check_pixels(chunk.images)
        yield chunk if device is None else replace(chunk, images=pinned(chunk.images, device))


def _now(journal: Journal | None) -> float:
    """The time in seconds, with what remembered answers took when they were asked for."""
    return time.perf_counter() + (0.0 if journal is None else journal.earlier_seconds)


def _on_canvas(images: Tensor, question: Question) -> Tensor:
    """Images with the canvas around them; a zero pose changes nothing else."""
    if not question.canvas:
        return images
    return warp(images, Pose.zeros(1), fill=question.fill, canvas=question.canvas)


def _check_identity(images: Tensor, still: Pose, question: Question) -> None:
    """Check that families of a user's own leave images as they are at their zero."""
    if not still.chain.code_digest:
        return
    seen = Resampling(question.fill, view=question.view)
    if not seen(images, still).equal(seen(images, Pose.zeros(1))):
        raise ValueError(
            f"a zero pose of {' '.join(still.chain.names)} changes images, but zero must be the "
            "identity, bit for bit: grids, draws and natural accuracy rely on it"
        )


def _alike(kept: Tensor, logits: Tensor, *, roughly: bool) -> bool:
    """Whether a model answers as it did, up to rounding; older states have fewer answers."""
    answers = logits[: len(kept)].float().cpu()
    if kept.shape != answers.shape or kept.dtype != torch.float32:
        return False
    # Rounding is coarse in half precision, and on a GPU, which may take float32 for less.
    if roughly or logits.is_cuda or logits.dtype in (torch.float16, torch.bfloat16):
        return torch.allclose(kept, answers, rtol=0.02, atol=0.02)
    largest = kept[kept.isfinite()].abs().max() if kept.isfinite().any() else 0.0
    return torch.allclose(kept, answers, rtol=0, atol=_ROUNDING * float(largest))
