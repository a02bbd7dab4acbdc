"""A run that took all its steps, or several used together, as records tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upright.records import Origin
from upright.train.checkpoint import Checkpoint, RunDirectory
from upright.train.mean import Mean
from upright.train.pair import Pair
from upright.train.plan import Plan
from upright.tta import Averaging

__all__ = ["FinishedRun"]


@dataclass(frozen=True)
class FinishedRun:
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
    """Whether its weights were rounded to bfloat16 after training, as the zoo has them."""

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

    @property
    def is_oracle(self) -> bool:
        """Whether it reads the attack's own pose."""
        return self.plan.is_oracle

    def told(self) -> dict[str, Any]:
        """Give the fields of a record that tell who was evaluated."""
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
