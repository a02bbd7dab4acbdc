"""One pass over the data of an evaluation: the model is met, and each chunk is measured."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from upright import checks
from upright.attacks import GridSearch
from upright.devices import pinned, sent
from upright.evaluation.chunk_at_work import ChunkAtWork
from upright.evaluation.journal import Begun, Journal
from upright.evaluation.question import Question
from upright.evaluation.score import Move, Predictor, WorstLoss, logits_themselves, severity
from upright.evaluation.seen import SeenClasses
from upright.evaluation.state import Piece, State, checksum
from upright.evaluation.state_files import StateFiles
from upright.evaluation.stream import Chunk
from upright.evaluation.survival import HardestFirst
from upright.evaluation.time_limit import TimeLimit
from upright.evaluation.visits import Visits
from upright.logits import COARSE, rounding_of
from upright.pose import Pose
from upright.ranks import Ranks
from upright.space import Space
from upright.tiles import Room, usual_batch
from upright.warp import Resampling, warp
from upright.window import Window

__all__ = ["Examination", "prepared"]

_FIRST, _TWICE = 64, 16
"""Images that a model is asked about before all, and some of them once more."""
_LOOKED_AT = 256
"""Poses at which maps of a user's own are looked at before all."""
_CHANCE = 1e-3
"""Answers to the same question that are further apart, in digits that are not coarse, vary."""
_OTHER_DATA = "the state belongs to other data; remove it or name another file"


@dataclass
class Examination:
    """One pass over the data: what it asks, whom it asks, and what it found so far."""

    visits: Visits
    predictor: Predictor
    move: Move
    kept: State
    files: StateFiles
    time_limit: TimeLimit
    device: torch.device | None
    """Where to compute; None for where the data are."""
    classes: int = field(default=0, init=False)
    space: Space | None = field(default=None, init=False)
    """With limits that fit the images, once there were any."""
    hardest: dict[str, HardestFirst] = field(default_factory=dict, init=False)
    labels_seen: set[int] = field(default_factory=set, init=False)

    @property
    def question(self) -> Question:
        return self.visits.question

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
        if any(isinstance(attack, GridSearch) for attack in self.question.attacks.values()):
            checks.warn_if_repeating([axis.name for axis in self.space.axes if axis.repeats])
        images = sent(chunk.images[:_FIRST], self._device(chunk))
        self.predictor.room = Room(self.predictor.room.batch_size or usual_batch(images))
        # Moved by nothing, which an oracle's locator does not leave at that: it too is the model.
        still = self.question.space.zeros(1)
        first = _on_canvas(images, self.question)
        _check_families(first, self.space, self.question)
        look = WorstLoss(
            replace(self.predictor, advance=lambda _: None),  # shares the room
            first,
            torch.zeros(len(first), dtype=torch.int64, device=first.device),
            self.move,
            logits_themselves,
            places=self.visits.places_of(chunk),
        )
        logits = look(still[None])[0]
        checks.warn_if_probabilities(logits)
        self._meet_again(look, still[None], logits)
        self.classes = logits.shape[1]
        checks.check_top(self.question.top, self.classes)
        first = self.kept.once("first_logits", logits.float())
        if not _alike(first, logits, roughly=self.kept.knows_model):
            raise ValueError(
                "the state belongs to another model or other data; remove it or name another file"
            )

    def _meet_again(self, look: WorstLoss, still: Pose, logits: Tensor) -> None:
        """Ask about some images once more, in other company: their answers are their own."""
        places = torch.arange(len(logits))
        rows = torch.cat((places[::2], places[1::2]))[:_TWICE]
        # Batches of the same size, which a model may insist on, if there are others to fill them.
        is_all = len(rows) == len(logits) <= (look.predictor.room.batch_size or 1)
        parts = rows.chunk(2) if is_all else (rows,)
        again = torch.cat([look.restrict(part)(still)[0] for part in parts])
        first = logits[sent(rows, logits.device)]
        near = max(_CHANCE, rounding_of(logits))
        told = checks.is_training(self.predictor.model)
        if not (told or torch.allclose(first, again, rtol=near, atol=near)):
            chance = not torch.allclose(logits, look(still)[0], rtol=near, atol=near)
            checks.warn_of_other_answers(chance=chance)

    def _look_at_classes(self, chunk: Chunk) -> None:
        """Tell whether the images up to a limit are of more than one class, once all were seen."""
        cut_at = self.visits.cut_at
        if cut_at is not None and self.classes > 1:
            self.labels_seen |= set(chunk.labels.unique().tolist())
            if chunk.start + len(chunk) == cut_at:
                checks.warn_if_one_class(self.labels_seen, cut_at)

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
        question, device = self.question, self._device(chunk)
        score = WorstLoss(
            self.predictor,
            _on_canvas(sent(chunk.images, device), question),
            sent(chunk.labels, device).long(),
            self.move,
            partial(severity, top=question.top),
            None if question.only_accuracy else SeenClasses(),
            self.visits.places_of(chunk),
            journal,
        )
        space = question.space_for(chunk.images)
        at_work = ChunkAtWork(question, score, space, self.kept, self.hardest, Piece(len(chunk)))
        with at_work.timed(""):
            at_work.ask_as_it_is(chunk.labels)
            for name, attack in question.attacks.items():
                with at_work.timed(f"{name}/"):
                    at_work.attack(name, self.visits.generator(attack, chunk))
        return at_work.piece

    def _device(self, chunk: Chunk) -> torch.device:
        """Where a chunk is measured."""
        return self.device or chunk.images.device

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


def prepared(source: Iterator[Chunk], device: torch.device | None) -> Generator[Chunk, None, None]:
    """Check chunks, and put them where they are copied to the device without a wait."""
    for chunk in source:
        checks.check_layout(chunk.images)
        checks.check_float_images(chunk.images)
        checks.check_pixels(chunk.images)
        yield chunk if device is None else replace(chunk, images=pinned(chunk.images, device))


def _on_canvas(images: Tensor, question: Question) -> Tensor:
    """Images with the canvas around them; a zero pose changes nothing else."""
    if not question.canvas:
        return images
    return warp(images, Pose.zeros(1), fill=question.fill, canvas=question.canvas)


def _check_families(images: Tensor, space: Space, question: Question) -> None:
    """Check what families of a user's own do to the first images: what all else relies on."""
    chain = space.chain
    if not chain.code_digest:
        return
    seen = Resampling(question.fill, view=question.view, margin=question.canvas)
    names = " ".join(chain.names)
    if not seen(images, space.zeros(1)).equal(seen(images, Pose.zeros(1))):
        raise ValueError(
            f"a zero pose of {names} changes images, but zero must be the identity, bit for bit: "
            "grids, draws and natural accuracy rely on it"
        )
    _look_at_maps(space, Window.of(images, question.view, margin=question.canvas).size)
    images = torch.cat((images[:1], images[:1].flip(-1) / 2))
    poses = space.sample(2, generator=torch.Generator().manual_seed(0))
    together = seen(images, poses)
    alone = torch.cat([seen(images[i : i + 1], poses[i : i + 1]) for i in range(2)])
    if not (together.isfinite().all() and alone.isfinite().all()):
        raise ValueError(
            f"{names} gives pixels that are not finite; let it give numbers at every pose between "
            "its limits"
        )
    if not torch.allclose(together, alone, rtol=0, atol=1e-2):
        raise ValueError(
            f"{names} does something else to an image that comes alone, or comes again: let each "
            "have its own pose, a column of which is values[..., 0], and draw nothing at random"
        )


def _look_at_maps(space: Space, size: tuple[int, int]) -> None:
    """Have the matrices of some poses looked at, corners of the box among them, on a CPU."""
    inside = space.sample(_LOOKED_AT, generator=torch.Generator().manual_seed(0)).values
    low, high = torch.tensor(space.limits, dtype=inside.dtype).T
    corners = torch.where(inside > (low + high) / 2, high, low)
    for stage in space.chain.stages:
        if stage.is_spatial:
            stage.inverse_matrix(torch.cat((inside, corners))[:, stage.columns], size)


def _alike(kept: Tensor, logits: Tensor, *, roughly: bool) -> bool:
    """Whether a model answers as it did, up to rounding; older states have fewer answers."""
    answers = logits[: len(kept)].float().cpu()
    if kept.shape != answers.shape or kept.dtype != torch.float32:
        return False
    largest = kept[kept.isfinite()].abs().max() if kept.isfinite().any() else 0.0
    rounding = COARSE if roughly else rounding_of(logits)
    return torch.allclose(kept, answers, rtol=0, atol=rounding * float(largest))
