"""Who is measured, as records tell it: a run that is finished, several together, or a guest."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upright import zoo
from upright.records import Origin
from upright.sources.averaged import AVERAGED, MEAN, names_in_mean
from upright.sources.trained import STN_PLUS
from upright.train import Checkpoint, Mean, Pair, Plan, RunDirectory
from upright.tta import Averaging
from upright.zoo import Card

__all__ = ["FinishedRun", "Subject", "is_run"]


class Subject(abc.ABC):
    """Who is measured: a ``FinishedRun`` or a ``Guest``."""

    @abc.abstractmethod
    def told(self) -> dict[str, Any]:
        """Give the fields of a record that tell who was evaluated."""

    @property
    def is_oracle(self) -> bool:
        """Whether it reads the attack's own pose."""
        return False

    @property
    def packed(self) -> bool:
        """Whether its weights were rounded to bfloat16 after training, as the zoo has them."""
        return False


@dataclass(frozen=True)
class FinishedRun(Subject):
    """What a record needs of a run that took all its steps, or of several used together."""

    plan: Plan
    """What was trained."""
    seconds: float
    """Of training, over all resumptions, of all runs together."""
    beside: int | None = None
    """The most runs that trained side by side, this one included; None if unknown."""
    trained_by: tuple[Origin, ...] = ()
    """What trained it; empty if unknown."""
    packed: bool = False

    @staticmethod
    def of(plan: Plan, folders: Sequence[Path]) -> FinishedRun:
        """Look into the folders of a plan's runs; one that was stopped is not what it says.

        The recipes are those of the folders, which know the digests of code that was run.
        """
        runs = [RunDirectory.open(path) for path in folders]
        ends = [_last(run) for run in runs]
        return FinishedRun(
            plan.with_runs([run.recipe for run in runs]),
            sum(end.seconds for end in ends),
            _most(end.beside for end in ends),
            _each_once(end.trained_by for end in ends),
        )

    @staticmethod
    def open(path: Path) -> FinishedRun:
        """Look into a run's folder."""
        return FinishedRun.of(RunDirectory.open(path).recipe, [path])

    @staticmethod
    def of_pair(locnet: Path, classifier: Path, *, oracle: bool) -> FinishedRun:
        """Look into the folders of a LocNet and a classifier, which are used together."""
        folders = (locnet, classifier)
        for path in folders:
            if not path.is_dir():
                raise ValueError(
                    f"two networks are recorded together by the folders of their runs, and {path} "
                    "is no folder"
                )
        first, second = (RunDirectory.open(path).recipe for path in folders)
        return FinishedRun.of(Pair(locnet=first, classifier=second, oracle=oracle), folders)

    @staticmethod
    def of_card(card: Card) -> FinishedRun:
        """The run that a model of the zoo was."""
        first = card.records[0]
        return FinishedRun(
            card.recipe, card.train_seconds, first.beside, first.trained_by, packed=True
        )

    @staticmethod
    def mean(members: Sequence[FinishedRun], over: Averaging | None = None) -> FinishedRun:
        """Take several as one, by the mean of their answers."""
        if len({each.plan.hash for each in members}) < len(members):
            raise ValueError("a run stands twice in a mean; name each once")
        return FinishedRun(
            Mean.of([each.plan for each in members], over),
            sum(each.seconds for each in members),
            _most(each.beside for each in members),
            _each_once(each.trained_by for each in members),
            packed=any(each.packed for each in members),
        )

    @staticmethod
    def of_model(name: str) -> FinishedRun | None:
        """The run, or the runs, that a model by name is; None for a model from elsewhere."""
        if not is_run(name):
            return None
        if match := AVERAGED.fullmatch(name):
            return FinishedRun.mean(_all_of([match[2]]), Averaging.parse(match[1]))
        if match := MEAN.fullmatch(name):
            return FinishedRun.mean(_all_of(names_in_mean(match[1])))
        if name.startswith("zoo:"):
            return FinishedRun.of_card(zoo.card(name.removeprefix("zoo:")))
        if match := STN_PLUS.fullmatch(name):
            return FinishedRun.of_pair(Path(match[1]), Path(match[2]), oracle=False)
        return FinishedRun.open(Path(name))

    @property
    def is_oracle(self) -> bool:
        return self.plan.is_oracle

    def told(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "method": plan.method,
            "model": plan.main.model,
            "seed": plan.main.seed,
            "recipe": plan.as_json(),
            "recipe_hash": plan.hash,
            "steps": plan.total_steps,
            "train_seconds": self.seconds,
            "beside": self.beside,
            "trained_by": self.trained_by,
        }


def is_run(name: str) -> bool:
    """Whether a model by name was trained here, so that it is known by its recipe."""
    if match := AVERAGED.fullmatch(name):
        return is_run(match[2])
    if match := MEAN.fullmatch(name):
        return all(map(is_run, names_in_mean(match[1])))
    is_known = name.startswith("zoo:") or STN_PLUS.fullmatch(name) is not None
    return is_known or Path(name).is_dir()


def _all_of(names: Iterable[str]) -> list[FinishedRun]:
    """Look at models by name, each of which is a run."""
    found = [FinishedRun.of_model(name) for name in names]
    return [each for each in found if each is not None]


def _last(run: RunDirectory) -> Checkpoint:
    """The checkpoint of a run's last step."""
    checkpoint = run.load()
    step, steps = (0 if checkpoint is None else checkpoint.step), run.recipe.steps
    if checkpoint is None or step != steps:
        raise ValueError(
            f"{run.path} cannot be recorded: it is at step {step} of {steps}; finish it with "
            "--resume"
        )
    return checkpoint


def _most(numbers: Iterable[int | None]) -> int | None:
    """The largest; None where one is unknown."""
    found = [*numbers]
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None


def _each_once(some: Iterable[Sequence[Origin]]) -> tuple[Origin, ...]:
    """What trained any of several; empty where that is unknown of one."""
    every = [*some]
    found: list[Origin] = []
    for origins in every:
        found += [each for each in origins if each not in found]
    return tuple(found) if all(every) else ()
