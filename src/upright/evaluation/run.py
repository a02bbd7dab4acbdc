"""Evaluate a classifier: its accuracy on images as they are, and under the worst pose of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor

from upright import checks
from upright.attacks import Attack, CandidateSearch, RoundSearch, pick_worst
from upright.evaluation.oracle import Oracle, oracle_in
from upright.evaluation.outcome import outcome
from upright.evaluation.question import Question
from upright.evaluation.result import Evaluation
from upright.evaluation.rounds import Driven, drive
from upright.evaluation.score import (
    Move,
    Notes,
    Predictor,
    WorstLoss,
    is_fooled,
    loss_of,
    named_image,
    or_as_it_is,
    rank,
)
from upright.evaluation.state import Piece, State, checksum
from upright.evaluation.state_files import StateFiles
from upright.evaluation.stream import Chunk, Data, chunks, count_images, cuts
from upright.evaluation.survival import HardestFirst, has_zero, survivors
from upright.fooled import pack_bits
from upright.modes import climbing
from upright.pose import Pose
from upright.ranks import ALONE, Ranks
from upright.space import PAPER, Space
from upright.tiles import Room, images_at_once
from upright.warp import Fill, Interpolation, Resampling, warp

__all__ = ["evaluate", "examine"]

_FIRST, _TWICE = 64, 16
"""Images that a model is asked about before all, and some of them once more."""
_ROUNDING = 1e-4
"""Of logits in float32 on a CPU, as a part of the largest; see docs/evaluate.md."""
_OTHER_DATA = "the state belongs to other data; remove it or name another file"


def evaluate(
    model: checks.Model,
    data: Data,
    *,
    attacks: Sequence[str | Attack] | None = None,
    space: Space | str = PAPER,
    only_accuracy: bool = False,
    top: int = 1,
    include_identity: bool = False,
    fill: Fill = "black",
    interpolation: Interpolation = "bilinear",
    canvas: int = 0,
    view: int | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
    state: Path | str | None = None,
    progress: bool = False,
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Measure natural accuracy and the accuracy under each attack.

    Args:
        model: any callable from float images in [0, 1], N x C x H x W, to logits, N x classes; or
            an ``Oracle``, whose result says that it is one. A module that refuses images in their
            dtype gets them in that of its weights, such as float16, after the warp.
        data: a pair (images, labels) or a dict of them; or a Dataset, a DataLoader, or anything
            that gives samples or batches which are such pairs or dicts. Images are float in [0, 1]
            or uint8, N x C x H x W, or pictures of PIL; of a dict they are called ``pixel_values``,
            ``image``, ``img`` or ``images``, labels ``labels``, ``label``, ``target`` or
            ``targets``.
        attacks: names such as ``grid-775``, ``wo-10`` or ``s-pgd``, or ``Attack`` objects. Without
            any, a grid: over the paper's space ``grid-775``, over others as is usual for their
            axes.
        space: the poses to search, as a text such as ``shift(10%) rotate(20) zoom(0.9..1.1)``, or
            a ``Space``.
        only_accuracy: leave out the worst poses. An image that is fooled is then not asked again:
            the same accuracy in fewer passes.
        top: an answer is right where the true class is among so many largest logits: 5 gives top-5
            accuracies, natural and worst-case. A pose fools a model where its answer is not right.
        include_identity: let every attack try images as they are, too, which random poses and
            gradient steps leave out, and with it the paper. It costs no pass.
        fill: what a pose uncovers, see ``warp``.
        interpolation: how images are resampled, see ``warp``.
        canvas: pad all images by this many pixels first, so that no pose crops them: black ones, or
            of the fill's colour.
        view: the model sees the central so many pixels of the moved image, so that where images are
            larger, what comes in is real. Parts of the image's size are then parts of this.
        limit: use the first so many images only; which these are depends on the order of the data.
        batch_size: at most so many images at once; fewer while they do not fit into memory.
        device: where to compute; unless told, where the model's parameters are, or else the data.
        generator: for attacks that draw poses. What is drawn for an image depends on the generator
            and on the image's place in the data, and on nothing else. Without a generator the draws
            are those of a fixed seed.
        state: a file that keeps what is done: the same call continues where it was stopped.
        progress: show a bar with the time left.
        ranks: the processes that share the images, see ``joined_ranks``; all of them call this with
            the same arguments, and all get the whole result.
    """
    question = Question.of(
        attacks,
        generator=generator,
        space=space,
        only_accuracy=only_accuracy,
        fill=fill,
        interpolation=interpolation,
        canvas=canvas,
        view=view,
        limit=limit,
        top=top,
        include_identity=include_identity,
    )
    return examine(
        model,
        data,
        question,
        batch_size=batch_size,
        device=device,
        state=state,
        progress=progress,
        ranks=ranks,
    )


def examine(
    model: checks.Model,
    data: Data,
    question: Question,
    *,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    state: Path | str | None = None,
    progress: bool = False,
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Measure what a question asks, as ``evaluate`` does; data and network are as it asks already.

    All but the question says where and how to compute, on which no accuracy depends.
    """
    limit = question.limit
    checks.check_at_least_1(batch_size=batch_size)
    checks.warn_if_training(model)
    files = StateFiles(None if state is None else Path(state), ranks)
    oracle = oracle_in(model)
    # Its weights may be those of a defence, which asks something else.
    asked = question.for_state() | ({"oracle": True} if oracle is not None else {})
    kept = ranks.lead(lambda: files.load(asked, model))
    measured = State(kept.question, constants=kept.constants)
    with (
        _bar(progress, count_images(data, limit), question) as advance,
        climbing(),
    ):
        predictor = Predictor(model, Room(batch_size or 0), advance)
        examination = _Examination(question, predictor, _move(oracle, question), kept)
        examination.cut_at = limit if cuts(data, limit) else None
        for chunk in examination.unfinished(chunks(data, limit), _device(model, device), ranks):
            piece = examination.measure(chunk)
            kept.pieces[chunk.start] = measured.pieces[chunk.start] = piece
            files.save(kept, chunk)
    for other in ranks.gather(measured):
        kept.merge(other)
    ranks.lead(lambda: files.finish(kept))
    return outcome(kept, question, examination.space, oracle=oracle is not None)


@dataclass
class _Examination:
    """One pass over the data: what it asks, whom it asks, and what it found so far."""

    question: Question
    predictor: Predictor
    move: Move
    kept: State
    classes: int = 0
    hardest: dict[str, HardestFirst] = field(default_factory=dict)
    cut_at: int | None = None
    seen: set[int] = field(default_factory=set)
    space: Space | None = None
    """With limits that fit the images, once there were any."""

    def unfinished(
        self, source: Iterator[Chunk], device: torch.device | None, ranks: Ranks
    ) -> Iterator[Chunk]:
        """Pass on the chunks still to be measured, checked and on the device.

        Of several ranks each gets the next one when it asks for it: none waits for a slower one.
        """
        known, claims = dict(self.kept.pieces), ranks.claims()
        mine, turn = next(claims), 0
        for chunk in source:
            checks.check_layout(chunk.images)
            checks.check_float_images(chunk.images)
            checks.check_pixels(chunk.images)
            place = device or chunk.images.device
            placed = Chunk(chunk.start, chunk.images.to(place), chunk.labels.to(place))
            if chunk.start == 0:
                self._meet_model(placed)
            checks.check_labels(chunk.labels, len(chunk), self.classes)
            self._look_at_classes(chunk)
            piece = known.pop(chunk.start, None)
            if piece is not None and piece.checksum != checksum(chunk):
                raise ValueError(_OTHER_DATA)
            if piece is None and turn == mine:
                yield placed
                mine = next(claims)
            else:
                self.predictor.advance(len(chunk) * self.question.passes_per_image)
            turn += piece is None
        if known:
            raise ValueError(_OTHER_DATA)

    def _meet_model(self, chunk: Chunk) -> None:
        """Look at the model's first answers, and set how many images it gets at once."""
        self.space = self.question.space_for(chunk.images)
        self.predictor.room = Room(self.predictor.room.batch_size or _batch_size(chunk.images))
        # Moved by nothing, which an oracle's locator does not leave at that: it too is the model.
        still = self.question.space.zeros(1)
        first = _on_canvas(chunk.images[:_FIRST], self.question)
        _check_identity(first, still, self.question)
        few = self.move(first, still)
        logits = self.predictor.peek(few)
        checks.check_numbers(logits, lambda at: named_image(at[0], still[0]))
        checks.warn_if_probabilities(logits)
        checks.warn_if_random(logits[:_TWICE], self.predictor.peek(few[:_TWICE]))
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
            self.seen |= set(chunk.labels.unique().tolist())
            if chunk.start + len(chunk) == self.cut_at:
                checks.warn_if_one_class(self.seen, self.cut_at)

    def measure(self, chunk: Chunk) -> Piece:
        """Measure one chunk under the zero pose and under each attack."""
        piece, began = Piece(len(chunk)), time.perf_counter()
        space = self.question.space_for(chunk.images)
        score = WorstLoss(
            self.predictor,
            _on_canvas(chunk.images, self.question),
            chunk.labels.long(),
            self.move,
            partial(rank, top=self.question.top),
            None if self.question.only_accuracy else Notes(),
            torch.arange(chunk.start, chunk.start + len(chunk), device=chunk.images.device),
        )
        natural = score(space.zeros(1, 1))[0]
        piece.keep(
            labels=chunk.labels, natural_fooled=is_fooled(natural), natural_loss=loss_of(natural)
        )
        for name, attack in self.question.attacks.items():
            began_attack, passes = time.perf_counter(), self.predictor.passes
            generator = self.question.generator(attack, chunk.start)
            if self.question.only_accuracy and isinstance(attack, CandidateSearch):
                poses = attack.candidates(space, len(chunk), generator=generator)
                hardest = self.hardest.setdefault(name, HardestFirst(poses, space))
                with_zero = self.question.include_identity or has_zero(poses)
                fallen = is_fooled(natural) & with_zero
                piece.keep(**{f"{name}/fooled": ~survivors(score, poses, hardest, ~fallen)})
            elif self.question.only_accuracy and isinstance(attack, RoundSearch):
                fallen = is_fooled(natural) & self.question.include_identity
                found = self._drive(piece, name, score, space, generator, ~fallen)
                piece.keep(**{f"{name}/fooled": found.fooled | fallen})
            else:
                self._keep_worst(piece, name, score.with_own_notes(), natural, space, generator)
            piece.totals[f"{name}/passes"] = self.predictor.passes - passes
            piece.totals[f"{name}/seconds"] = time.perf_counter() - began_attack
        piece.totals["seconds"] = time.perf_counter() - began
        return piece

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
        if isinstance(attack, CandidateSearch):
            poses = attack.candidates(space, count, generator=generator)
            values = score(poses)
            worst = pick_worst(poses, values)
            if attack.shared:
                piece.keep(**{f"{name}/bits": pack_bits(is_fooled(values).T)})
                self.kept.once(f"{name}/grid", poses[:, 0].values)
        elif isinstance(attack, RoundSearch):
            everyone = torch.ones_like(score.labels, dtype=torch.bool)
            worst = self._drive(piece, name, score, space, generator, everyone).rounds.worst()
        else:
            worst = attack.search(score, space, count, generator=generator)
        if self.question.include_identity:
            worst = or_as_it_is(worst, natural)
        piece.keep(
            **{
                f"{name}/fooled": is_fooled(worst.score),
                f"{name}/pose": worst.pose.values,
                f"{name}/loss": loss_of(worst.score),
            }
        )
        if not self.question.only_accuracy:
            piece.keep(**{f"{name}/class": score.class_at(worst)})

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


def _move(oracle: Oracle | None, question: Question) -> Move:
    """What shows a model images under poses; an oracle sees to that itself."""
    way = question.resampling
    return way if oracle is None else partial(oracle.move, resampling=way)


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


def _batch_size(images: Tensor) -> int:
    """A batch that keeps the device busy; small enough on a CPU to stay in its cache."""
    return images_at_once(images, 8192 if images.is_cuda else 128)


def _device(model: object, device: torch.device | str | None) -> torch.device | None:
    """Where to compute; None for where the data are."""
    if device is None and isinstance(model, torch.nn.Module):
        for parameter in model.parameters():
            return parameter.device
    return None if device is None else torch.device(device)


@contextlib.contextmanager
def _bar(show: bool, images: int | None, question: Question) -> Iterator[Callable[[int], None]]:
    total = images and images * question.passes_per_image
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, quiet=not show)  # before rich 14.3 even no bar ends in a newline
    with Progress(*columns, console=console, disable=not show) as bar:
        task = bar.add_task("evaluating", total=total)
        yield lambda passes: bar.advance(task, passes)
