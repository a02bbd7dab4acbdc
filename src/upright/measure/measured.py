"""Measure a model: it is loaded, evaluated and recorded here, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import torch

from upright.attacks import CandidateSearch, parse_attack
from upright.checks import Model
from upright.data import AnySplit, ClassNames, LabelledImages, has_parts, load_data
from upright.data.raw import RawSplit, split_digests
from upright.data.recognise import Recognised
from upright.data.registry import can_resize
from upright.data.store import recognise_any
from upright.evaluation import Evaluation, Question, examine
from upright.identity import is_from_file
from upright.measure.as_asked import as_asked
from upright.measure.classes import are_in_order, first_image, in_model_order, logits_as_asked
from upright.measure.guest import Guest
from upright.origin import origin_on
from upright.ranks import ALONE, Ranks
from upright.records import Record
from upright.sources import Trained, load_pretrained
from upright.sources.blame import blaming
from upright.sources.preprocess import AS_IT_IS, Preprocess
from upright.train import FinishedRun, Plan, Recipe

__all__ = [
    "Loaded",
    "Measured",
    "Subject",
    "digests_of",
    "load",
    "load_images",
    "measure",
    "question_of_run",
    "record_of",
]


Subject: TypeAlias = FinishedRun | Guest
"""Who is measured, as records tell it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A model and the images to measure it on, both on hand."""

    model: Model
    subject: Subject | None
    """Whom a record is about; None where there is to be none."""
    data: LabelledImages
    data_name: str
    """As they were asked for, such as ``cifar10`` or ``npz:FILE``."""
    question: Question
    """What the evaluation is asked."""
    device: torch.device
    trained: tuple[Trained, ...] = ()
    """How the parts of it were trained that were trained here."""
    preprocess: Preprocess = AS_IT_IS
    """What is done around the network, by its source and as was told."""
    outputs: int | None = None
    """How many classes the model has; None where it has not been asked yet."""
    in_order: bool = False
    """Whether folders are the model's classes by their order: no names said which is which."""


def load(
    model: str,
    data: str,
    question: Question,
    *,
    device: torch.device,
    recorded: bool = True,
    called: str | None = None,
    preprocess: Preprocess = AS_IT_IS,
    classes: ClassNames | None = None,
) -> Loaded:
    """Load a model by name, and the images that a question asks for of data by name.

    Images that come in any size are brought to the one that the model was trained on, or is usually
    shown, but for what the question says of it; what is seen of them is a run's view. Names of
    classes decide which output is which, see ``in_model_order``.

    Args:
        model: one of ``sources.model_names()``, filled in.
        data: see ``load_data``.
        question: what the evaluation is to be asked.
        device: where to evaluate.
        recorded: whether a record is wanted, for which a run must be finished.
        called: what tables call a model that was not trained here; without, its name.
        preprocess: what is told of how the model takes images and answers.
        classes: the names of the model's outputs; without, those that its source knows.
    """
    has_parts(data)  # a name or a place that is wrong is said before a model is fetched
    found = load_pretrained(model, device=device)
    if preprocess.as_json() and found.trained:
        raise ValueError(
            f"{model} was trained here, and has its preprocessing inside; leave out what is told"
        )
    if called is not None and found.finished is not None:
        raise ValueError(f"{model} is called by its recipe; leave out --name")
    run = None if found.finished is None or not recorded else found.finished()
    if question.precision != "float32" and not found.in_torch:
        raise ValueError(
            f"{model} is computed as its file says, and not in {question.precision}; leave out "
            "--precision, or convert the file"
        )
    if question.compile and is_from_file(found.network):
        raise ValueError(
            f"{model} is computed as its file says, and is not compiled; leave out --compile, or "
            "give the network itself, as FILE.py:FACTORY"
        )
    whole = found.preprocess | preprocess
    network = found.model(preprocess, device=device)
    guest = None
    if recorded and run is None:
        as_given = found.model(device=device) if preprocess.as_json() else network
        guest = Guest.of(as_given, model, name=called, told=preprocess)
    if found.trained:
        question = _as_trained(question, found.trained[0].recipe, resizes=can_resize(data))
    question = _in_usual_size(question, data, whole)
    images = load_images(question, data)
    image = first_image(images, question, device)
    as_taken = image.movedim(1, 3) if whole.layout == "channels-last" else image
    with blaming(model, as_taken):
        outputs = logits_as_asked(network, question, image).shape[1]
    names = classes or (ClassNames(found.classes) if found.classes else None)
    labelled = in_model_order(images, names, outputs, told=classes is not None)
    return Loaded(
        model=network,
        subject=run or guest,
        data=labelled,
        data_name=data,
        question=question,
        device=device,
        trained=found.trained,
        preprocess=whole,
        outputs=outputs,
        in_order=can_resize(data) and are_in_order(images, labelled, names),
    )


def _as_trained(question: Question, run: Recipe, *, resizes: bool = True) -> Question:
    """Ask for images in the size and view of a run's own, where nothing is asked of these.

    Data of one size alone cannot be resized.
    """
    if resizes and question.resize is None and question.center_crop is None:
        question = replace(question, resize=run.resize, center_crop=run.center_crop)
    return replace(question, view=run.view) if question.view is None else question


def _in_usual_size(question: Question, data: str, preprocess: Preprocess) -> Question:
    """Ask for images of the size that the model is usually shown, but for what is asked for.

    Of a view, that is what is seen: around it images are as large as they were resized to.
    """
    if not can_resize(data):
        return question
    resize = question.resize or preprocess.resize
    crop = preprocess.center_crop if question.view is None else resize
    return replace(question, resize=resize, center_crop=question.center_crop or crop)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A finished evaluation, and what was evaluated."""

    loaded: Loaded
    """With the model in the precision in which it was evaluated, and compiled if it was."""
    evaluation: Evaluation

    @property
    def images(self) -> LabelledImages:
        """The images that were measured, in the order of the data."""
        data, places = self.loaded.data, self.evaluation.places
        return data if places is None else data.take(places)

    @cached_property
    def record(self) -> Record:
        """Made once, so that all who keep it keep the same."""
        loaded = self.loaded
        assert loaded.subject is not None  # or nobody would ask
        return record_of(
            loaded.subject,
            self.evaluation,
            data_name=loaded.data_name,
            data=self.images,
            question=loaded.question,
            device=loaded.device,
        )


def measure(
    loaded: Loaded,
    *,
    minutes: float | None = None,
    batch_size: int | None = None,
    state: Path | None = None,
    progress: bool = False,
    ranks: Ranks = ALONE,
) -> Measured:
    """Evaluate what was loaded; the options are ``upright.evaluate``'s."""
    model = as_asked(
        loaded.model, loaded.question, loaded.data, loaded.device, batch_size=batch_size
    )
    evaluation = examine(
        model,
        loaded.data,
        loaded.question,
        minutes=minutes,
        batch_size=batch_size,
        device=loaded.device,
        state=state,
        progress=progress,
        ranks=ranks,
    )
    return Measured(loaded=replace(loaded, model=model), evaluation=evaluation)


def question_of_run(plan: Plan, asked: Question | None = None) -> Question:
    """Ask on images of the size that a run trained on; by default the paper's question.

    The attack uncovers what a LocNet was trained to look at, where there is one.
    """
    asked = _as_trained(asked or Question(), plan.main)
    return replace(asked, fill=plan.locnet_fill or asked.fill)


def load_images(question: Question, data: str) -> LabelledImages:
    """Load the images that are asked for, of data by name."""
    return load_data(
        data,
        split=question.split,
        limit=question.limit,
        resize=question.resize,
        center_crop=question.center_crop,
    )


def record_of(
    subject: Subject,
    evaluation: Evaluation,
    *,
    data_name: str,
    data: LabelledImages,
    question: Question,
    device: torch.device,
) -> Record:
    """Give the record of an evaluation that has just been done.

    Args:
        subject: the run that was evaluated, or the two, or another model.
        evaluation: what was measured.
        data_name: the data as they were asked for, such as ``cifar10`` or ``npz:FILE``.
        data: the images that were evaluated.
        question: what the evaluation was asked.
        device: where it was evaluated.
    """
    origin, asked = origin_on(device), _as_measured(question, evaluation).for_record()
    found = recognise_any(question.split, _raw(data))
    known = None if found is None else found.name
    results = evaluation.attacks
    measured = {"nat": evaluation.natural_accuracy}
    measured |= {name: result.accuracy for name, result in results.items()}
    assert evaluation.oracle == subject.is_oracle
    return Record(
        **subject.told(),
        dataset=known or data_name,
        evaluation=asked | ({"weights": "bfloat16"} if subject.packed else {}),
        measured=measured,
        images=len(evaluation),
        reported={},
        evaluate_seconds=evaluation.seconds,
        forward_passes=len(evaluation) + sum(each.forward_passes for each in results.values()),
        data_digest=digests_of(data, question.split),
        commit=origin.commit,
        versions=origin.versions,
        hardware=origin.hardware,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        data_variant=None if found is None else str(found),
        data_content=_content(found, question.split, results),
    )


def _as_measured(question: Question, evaluation: Evaluation) -> Question:
    """Give the question that was answered: of how many images, drawn at random, if not of all."""
    whole = evaluation.of_images in (None, len(evaluation))
    return replace(question, sample=None if whole else len(evaluation))


def digests_of(data: LabelledImages, split: AnySplit) -> dict[str, str]:
    """Give the SHA-256 of the images and of the labels."""
    return split_digests(split, _raw(data))


def _raw(data: LabelledImages) -> RawSplit:
    return RawSplit(data.images.cpu().numpy(), data.labels.cpu().numpy())


def _content(
    found: Recognised | None, split: AnySplit, attacks: Iterable[str]
) -> dict[str, str] | None:
    """Digests of the images in the usual order, where another order measures the same."""
    if found is None or found.usual_order or not all(map(_shares_poses, attacks)):
        return None
    return dict(found.usual or {f"{split}_content": found.content})


def _shares_poses(attack: str) -> bool:
    """Whether all images try the same poses: what is drawn depends on an image's place."""
    try:
        search = parse_attack(attack)
    except ValueError:  # one without a name, of which nothing is known
        return False
    return isinstance(search, CandidateSearch) and search.shared
