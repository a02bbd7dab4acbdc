"""From who was measured, and the evaluation, to a record."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import torch

from upright.attacks import CandidateSearch, parse_attack
from upright.data import LabelledImages, Split
from upright.data.raw import RawSplit, split_digests
from upright.data.recognise import Identity
from upright.data.store import identify
from upright.evaluation import Evaluation, Question
from upright.measure.subject import Subject
from upright.origin import origin_on
from upright.records import Record

__all__ = ["digests_of", "record_of"]


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
    origin, asked = origin_on(device), question.for_record()
    identity = identify(question.split, _raw(data))
    known = None if identity is None else identity.name
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
        data_variant=None if identity is None else str(identity),
        data_content=_content(identity, question.split, results),
    )


def digests_of(data: LabelledImages, split: Split) -> dict[str, str]:
    """Give the SHA-256 of the images and of the labels."""
    return split_digests(split, _raw(data))


def _raw(data: LabelledImages) -> RawSplit:
    return RawSplit(data.images.cpu().numpy(), data.labels.cpu().numpy())


def _content(
    identity: Identity | None, split: Split, attacks: Iterable[str]
) -> dict[str, str] | None:
    """Digests of the images in the usual order, where another order measures the same."""
    if identity is None or identity.usual_order or not all(map(_shares_poses, attacks)):
        return None
    return dict(identity.usual or {f"{split}_content": identity.content})


def _shares_poses(attack: str) -> bool:
    """Whether all images try the same poses: what is drawn depends on an image's place."""
    try:
        search = parse_attack(attack)
    except ValueError:  # one without a name, of which nothing is known
        return False
    return isinstance(search, CandidateSearch) and search.shared
