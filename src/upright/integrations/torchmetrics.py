"""Worst-case accuracy as a metric of torchmetrics, for loops that keep their metrics there.

worst = WorstCaseAccuracy(model, "wo-10")
for images, labels in loader:
    worst.update(images, labels)
print(worst.compute())
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from upright.attacks import Attack, parse_attack
from upright.checks import Model
from upright.integrations.measure import Measurement
from upright.modes import climbing, ordinary

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "upright.integrations.torchmetrics needs torchmetrics: install the extra 'torchmetrics' of "
        "upright, or torchmetrics itself"
    ) from error

__all__ = ["WorstCaseAccuracy"]


@dataclass(frozen=True)
class _Held:
    """A model that is asked but not owned: no part of the metric's weights, nor of its copies."""

    model: Model

    def __deepcopy__(self, copied: dict[int, Any]) -> _Held:
        # Who copies a module with the metric in it wants the copy measured.
        return _Held(copied.get(id(self.model), self.model))


class WorstCaseAccuracy(Metric):
    """The share of images that stay correctly classified under an attack.

    ``update(images, labels)`` asks the model, as ``evaluate`` does: in evaluation mode, without a
    trace in it or in the random numbers to come. Its result on the same images in the same order
    is that of ``evaluate``, however they come in batches. Of several processes each has places of
    its own, so that they agree with ``evaluate`` where nothing is drawn, as on a grid.

    The model is held, not owned: the metric moves, saves and trains nothing of it, and ``clone()``
    asks the same model. Saved by ``pickle``, it is saved with it.

    Args:
        model: any callable from float images in [0, 1], N x C x H x W, to logits.
        attack: a name such as ``wo-10`` or ``grid-775``, or an ``Attack``.
        mean: of each channel, where the images come normalised; the model then gets them so, too.
        std: of each channel, where the images come normalised.
        generator: for attacks that draw poses, see ``evaluate``; it is asked once, here.
        sync: options of ``torchmetrics.Metric``, such as ``sync_on_compute``.
        options: others of ``evaluate``: ``space``, ``fill``, ``batch_size`` and so on.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    correct: Tensor
    total: Tensor
    question: Tensor

    def __init__(
        self,
        model: Model,
        attack: str | Attack = "wo-10",
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        generator: torch.Generator | None = None,
        sync: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**(sync or {}))
        if parts := [name for name in ("limit", "sample", "minutes") if options.get(name)]:
            raise ValueError(
                f"the metric measures all images that it is given; leave out {parts[0]}, and give "
                "it fewer batches"
            )
        self.attack = parse_attack(attack) if isinstance(attack, str) else attack
        self.measurement = Measurement([self.attack], mean, std, options)
        self._held, self._place, self._in_forward = _Held(model), 0, False
        self._asked = self.measurement.question(generator)
        # A MetricCollection updates only one of several metrics whose states are equal after the
        # first batch; older versions look at the first state alone. So that of two questions
        # differs, and is the first.
        asked = f"{id(model)} {self._asked.seed} {self.measurement}"
        digest = [*hashlib.sha256(asked.encode()).digest()]
        self.add_state("question", torch.tensor(digest), dist_reduce_fx="max")
        for name in ("correct", "total"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    @property
    def model(self) -> Model:
        return self._held.model

    def update(self, images: Tensor, labels: Tensor) -> None:
        """Measure a batch of images, which follow those of the batches before."""
        if not len(images):
            return
        self.correct += self._correct(images, labels).to(self.correct)
        self.total += len(images)
        self._place += len(images)

    def compute(self) -> Tensor:
        """Give the accuracy over all batches since the last reset."""
        return self.correct / self.total

    def forward(self, images: Tensor, labels: Tensor) -> Any:
        """Measure a batch, and give the accuracy over it alone."""
        # torchmetrics resets the states on the way, but the batch has its place all the same.
        self._in_forward = True
        try:
            return super().forward(images, labels)
        finally:
            self._in_forward = False

    def reset(self) -> None:
        """Forget all batches: the next image is the first."""
        super().reset()
        self._place = self._place if self._in_forward else 0

    def _correct(self, images: Tensor, labels: Tensor) -> Tensor:
        ask = partial(self.measurement.evaluate, question=self._asked, first=self._place)
        with climbing():
            found = ask(self.model, self.model, (ordinary(images), ordinary(labels)))
        return found.attacks[str(self.attack)].correct.sum()
