"""What the callbacks share: an evaluation in the midst of training that leaves no trace in it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from upright.attacks import Attack
from upright.checks import Model
from upright.evaluation import Evaluation, evaluate, examine
from upright.evaluation.question import Question
from upright.evaluation.stream import Data, chunks
from upright.modes import climbing, evaluation_mode
from upright.normalised import Normalised
from upright.ranks import ALONE, Ranks

__all__ = ["Measurement", "accuracies", "without_a_trace", "without_shares"]

_OF_QUESTIONS = {each.name for each in fields(Question)}


@dataclass(frozen=True)
class Measurement:
    """What to measure again and again: attacks, options of ``evaluate``, and the normalisation.

    Attacks and options are checked here, not after the first hours of training.
    """

    attacks: Sequence[str | Attack] = ("wo-10",)
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A state would belong to the first epoch's weights; the rest is not the caller's to say.
        ours = {"state": None, "device": None, "ranks": ALONE}
        inspect.signature(evaluate).bind(None, None, **self._asked, **ours)
        self.question()
        if self.mean is not None and self.std is not None:
            Normalised(nn.Identity(), self.mean, self.std)
        elif self.mean is not None or self.std is not None:
            raise ValueError("mean and std belong together: give both, or none")

    @property
    def _asked(self) -> dict[str, Any]:
        return {"attacks": self.attacks, "only_accuracy": True} | dict(self.options)

    def question(self, generator: torch.Generator | None = None) -> Question:
        """Give what ``evaluate`` is asked, with the seed that it takes from such a generator."""
        asked = {name: value for name, value in self._asked.items() if name in _OF_QUESTIONS}
        return Question.of(generator=generator, **asked)

    @property
    def _how(self) -> dict[str, Any]:
        """The options that say how to compute."""
        others = {name: value for name, value in self._asked.items() if name not in _OF_QUESTIONS}
        return {name: value for name, value in others.items() if name != "generator"}

    def evaluate(
        self,
        module: object,
        model: Model,
        data: Data,
        *,
        question: Question | None = None,
        first: int = 0,
        device: torch.device | None = None,
        ranks: Ranks = ALONE,
    ) -> Evaluation:
        """Evaluate, and leave no trace.

        Args:
            module: what is in training.
            model: what to ask, the module itself or a function around it.
            data: see ``evaluate``; normalised where there are a mean and a std.
            question: what is asked; unless told, what ``question`` gives for the generator that is
                among the options.
            first: the place of the first image, of data that come in pieces.
            device: where to compute, see ``evaluate``.
            ranks: the processes that share the images, all of which give the same data.
        """
        with without_a_trace(module):
            if self.mean is not None and self.std is not None:
                model = normalised = Normalised(model, self.mean, self.std)
                data = ((normalised.undo(part.images), part.labels) for part in chunks(data))
            asked = question or self.question(self._asked.get("generator"))
            return examine(model, data, asked, first=first, device=device, ranks=ranks, **self._how)


def accuracies(evaluation: Evaluation, worst: str) -> dict[str, float]:
    """Give the accuracies of an evaluation by the names of a log: ``worst`` is what the names of
    attacks begin with."""
    under = {worst + name: result.accuracy for name, result in evaluation.attacks.items()}
    return {"natural_accuracy": evaluation.natural_accuracy} | under


@contextlib.contextmanager
def without_a_trace(module: object) -> Iterator[None]:
    """Ask a module that is in training: its modes, its gradients and all random numbers to come
    are afterwards what they would have been."""
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    gpus = {parameter.device for parameter in parameters if parameter.is_cuda}
    with torch.random.fork_rng(gpus), climbing(), evaluation_mode(module):
        yield


def without_shares(loader: DataLoader[Any], ranks: Ranks) -> DataLoader[Any]:
    """Give a loader of all images, where several ranks have loaders of a share each.

    ``evaluate`` shares out the images by itself, so that none is counted twice and the result is
    that of one process; a framework fills up shares of unequal size with images that it repeats.
    """
    if ranks.alone:
        return loader
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError(
            "several processes cannot share a data set without indices; give data=, the same "
            "images on every process"
        )
    return DataLoader(
        loader.dataset,
        loader.batch_size or 64,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
    )
