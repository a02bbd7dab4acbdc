"""From a run, or any other model, and its evaluation to a record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from upright import zoo
from upright.attacks import CandidateSearch, parse_attack
from upright.data import LabelledImages, Split
from upright.data.raw import RawSplit, split_digests
from upright.data.recognise import Identity
from upright.data.store import identify
from upright.evaluation import Evaluation, Question
from upright.measure.guest import Guest
from upright.origin import origin_on
from upright.records import Origin, Record
from upright.sources.stn_plus import STN_PLUS
from upright.train import Recipe, RunDirectory
from upright.train.checkpoint import Checkpoint
from upright.train.pair import Pair
from upright.zoo import Card

__all__ = ["FinishedRun", "digests_of", "record_of"]


@dataclass(frozen=True)
class FinishedRun:
    """What a record needs of a run that took all its steps, or of two that are used together."""

    recipe: Recipe | Pair
    seconds: float
    """Of training, over all resumptions, of both where they are two."""
    beside: int | None = None
    """The most runs that trained side by side, this one included; None if unknown."""
    trained_by: tuple[Origin, ...] = ()
    """What trained it; empty if unknown."""
    packed: bool = False
    """Whether its weights were rounded to bfloat16 afterwards, as the zoo has them."""

    @staticmethod
    def of_card(card: Card) -> FinishedRun:
        """The run that a model of the zoo was."""
        first = card.records[0]
        return FinishedRun(
            card.recipe, card.train_seconds, first.beside, first.trained_by, packed=True
        )

    @staticmethod
    def open(path: Path) -> FinishedRun:
        """Look into a run's folder; a run that was stopped is not what its recipe says."""
        recipe, last = _finished(path)
        return FinishedRun(recipe, last.seconds, last.beside, last.trained_by)

    @staticmethod
    def of_pair(locnet: Path, classifier: Path, *, oracle: bool) -> FinishedRun:
        """Look into the folders of a LocNet and a classifier, which are used together."""
        for path in (locnet, classifier):
            if not path.is_dir():
                raise ValueError(
                    f"two networks are recorded together by the folders of their runs, and {path} "
                    "is no folder"
                )
        (first, of_first), (second, of_second) = _finished(locnet), _finished(classifier)
        besides = [run.beside for run in (of_first, of_second) if run.beside is not None]
        others = [each for each in of_second.trained_by if each not in of_first.trained_by]
        known = of_first.trained_by and of_second.trained_by
        return FinishedRun(
            Pair(locnet=first, classifier=second, oracle=oracle),
            of_first.seconds + of_second.seconds,
            max(besides) if len(besides) == 2 else None,
            (*of_first.trained_by, *others) if known else (),
        )

    @staticmethod
    def of_model(name: str) -> FinishedRun | None:
        """The run, or the two runs, that a model by name is; None for a model from elsewhere."""
        if name.startswith("zoo:"):
            return FinishedRun.of_card(zoo.card(name.removeprefix("zoo:")))
        if match := STN_PLUS.fullmatch(name):
            return FinishedRun.of_pair(Path(match[1]), Path(match[2]), oracle=False)
        return FinishedRun.open(Path(name)) if Path(name).is_dir() else None

    @property
    def is_oracle(self) -> bool:
        """Whether it is two runs that read the attack's own pose."""
        return isinstance(self.recipe, Pair) and self.recipe.oracle

    def told(self) -> dict[str, Any]:
        """Give the fields of a record that tell what was evaluated."""
        return {
            "method": str(self.recipe.objective),
            "model": self.recipe.model,
            "seed": self.recipe.seed,
            "recipe": self.recipe.as_json(),
            "recipe_hash": self.recipe.hash,
            "steps": self.recipe.steps,
            "train_seconds": self.seconds,
            "beside": self.beside,
            "trained_by": self.trained_by,
        }


def _finished(path: Path) -> tuple[Recipe, Checkpoint]:
    """A run's recipe, and the checkpoint of its last step."""
    run = RunDirectory.open(path)
    checkpoint = run.load()
    step, steps = (0 if checkpoint is None else checkpoint.step), run.recipe.steps
    if checkpoint is None or step != steps:
        raise ValueError(
            f"{path} cannot be recorded: it is at step {step} of {steps}; finish it with --resume"
        )
    return run.recipe, checkpoint


def record_of(
    subject: FinishedRun | Guest,
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
    run = subject if isinstance(subject, FinishedRun) else None
    assert evaluation.oracle == (run is not None and run.is_oracle)
    return Record(
        **subject.told(),
        dataset=known or data_name,
        evaluation=asked | ({"weights": "bfloat16"} if run and run.packed else {}),
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
