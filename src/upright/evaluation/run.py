"""Evaluate a classifier: its accuracy on images as they are, and under the worst pose of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor

from upright import checks
from upright.attacks import Attack
from upright.evaluation.ahead import one_ahead
from upright.evaluation.batches import InAnyOrder, is_whole
from upright.evaluation.examination import Examination, prepared
from upright.evaluation.oracle import move_for, oracle_in
from upright.evaluation.question import Question
from upright.evaluation.result import AttackResult, Evaluation, SlopeEstimate
from upright.evaluation.score import Predictor
from upright.evaluation.state import State
from upright.evaluation.state_files import StateFiles
from upright.evaluation.stream import Chunk, Data
from upright.evaluation.time_limit import TimeLimit
from upright.evaluation.visits import Visits
from upright.fooled import FooledPoses
from upright.modes import climbing, out_of_reach, without_synchronisation
from upright.pose import Pose
from upright.ranks import ALONE, Ranks
from upright.space import PAPER, Space
from upright.tiles import Room
from upright.warp import Fill, Interpolation

__all__ = ["evaluate", "examine"]


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
    sample: int | None = None,
    minutes: float | None = None,
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
        sample: use so many images, drawn at random by the generator's seed; of those up to the
            limit, where there is one. It needs data that give any image by its number.
        minutes: visit images in a random order, that of ``sample``, and begin no more of them when
            these minutes are about to be over. The result is of those that are done, a random part,
            with 95 % intervals; with a ``state``, the next call goes on. The first few images are
            always done.
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
        sample=sample,
        top=top,
        include_identity=include_identity,
    )
    return examine(
        model,
        data,
        question,
        minutes=minutes,
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
    first: int = 0,
    minutes: float | None = None,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    state: Path | str | None = None,
    progress: bool = False,
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Measure what a question asks, as ``evaluate`` does; data and network are as it asks already.

    Of data that are themselves a piece of others, ``first`` is the place of their first image
    there. All but that, the question and the minutes says where and how to compute, on which no
    accuracy depends.
    """
    time_limit = TimeLimit.of_minutes(minutes)
    visits = Visits.of(data, question, random=minutes is not None, first=first)
    question = visits.question
    checks.check_at_least_1(batch_size=batch_size)
    checks.check_callable(model)
    checks.warn_if_training(model)
    files = StateFiles(None if state is None else Path(state), ranks)
    oracle = oracle_in(model)
    # Its weights may be those of a defence, which asks something else.
    asked = question.for_state() | ({"oracle": True} if oracle is not None else {})
    kept = ranks.lead(lambda: files.load(asked, model))
    measured = State(kept.question, constants=kept.constants)
    with (
        _bar(progress, visits.count, question) as advance,
        climbing(),
        out_of_reach(model),
        without_synchronisation(model),
    ):
        examination = Examination(
            visits,
            Predictor(model, Room(batch_size or 0), advance),
            move_for(model, question.resampling),
            kept,
            files,
            time_limit,
            _device(model, device),
        )
        with contextlib.closing(_ready(visits, examination.device)) as ready:
            for chunk in examination.unfinished(ready, ranks):
                piece = examination.measure(chunk)
                kept.pieces[chunk.start] = measured.pieces[chunk.start] = piece
                files.save(kept, chunk)
    for other in ranks.gather(measured):
        kept.merge(other)
    ranks.lead(lambda: files.finish(kept))
    return _outcome(kept, visits, examination.space, oracle=oracle is not None)


def _ready(visits: Visits, device: torch.device | None) -> Generator[Chunk, None, None]:
    """Get chunks ready beside the work on those before them."""
    data, chunks_ready = visits.data, prepared(visits.chunks(), device)
    # What is a user's own to read is read where the user calls.
    beside = is_whole(data) or isinstance(data, InAnyOrder)
    return one_ahead(chunks_ready) if beside else chunks_ready


def _device(model: object, device: torch.device | str | None) -> torch.device | None:
    """Where to compute; None for where the data are."""
    if device is None and isinstance(model, torch.nn.Module):
        for parameter in model.parameters():
            return parameter.device
    place = None if device is None else torch.device(device)
    if place is not None and str(place) == "cuda":
        return torch.device("cuda", torch.cuda.current_device())  # another thread has its own
    return place


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


def _outcome(kept: State, visits: Visits, space: Space | None, *, oracle: bool) -> Evaluation:
    """Put together what the pieces of a state say; ``oracle`` is whether they are of one.

    ``space`` is the question's with limits that fit the images, if there were any.
    """
    if space is None or not kept.pieces:
        raise ValueError("the data set is empty: there is nothing to evaluate")
    question, places = visits.question, visits.places
    if places is not None:
        kept = kept.sorted(places)
        places = places[: kept.pieces[0].images].sort().values
    return Evaluation(
        natural_correct=~kept.joined("natural_fooled"),
        natural_loss=kept.joined("natural_loss"),
        labels=kept.joined("labels"),
        classes=kept.constants["first_logits"].shape[1],
        attacks={name: _attack_result(kept, name, space) for name in question.attacks},
        seconds=kept.total("seconds"),
        oracle=oracle,
        top=question.top,
        places=places,
        of_images=visits.of_images,
    )


def _attack_result(kept: State, name: str, space: Space) -> AttackResult:
    pose, correct = kept.if_whole(f"{name}/pose"), ~kept.joined(f"{name}/fooled")
    return AttackResult(
        attack=name,
        correct=correct,
        worst_pose=None if pose is None else Pose(pose, space.chain),
        worst_loss=kept.if_whole(f"{name}/loss"),
        worst_class=kept.if_whole(f"{name}/class"),
        fooled=_fooled(kept, name, space),
        forward_passes=int(kept.total(f"{name}/passes")),
        seconds=kept.total(f"{name}/seconds"),
        estimate=_estimate(kept, name, correct),
    )


def _estimate(kept: State, name: str, correct: Tensor) -> SlopeEstimate | None:
    safe, early = kept.if_whole(f"{name}/safe"), kept.if_whole(f"{name}/safe_early")
    if safe is None or early is None:
        return None
    return SlopeEstimate(safe & correct, early, early & ~correct)


def _fooled(kept: State, name: str, space: Space) -> FooledPoses | None:
    grid, bits = kept.constants.get(f"{name}/grid"), kept.if_whole(f"{name}/bits")
    if grid is None or bits is None:
        return None
    return FooledPoses(Pose(grid, space.chain), bits, kept.joined("natural_fooled"))
