"""A network, its optimiser and one step of training, plain or as one CUDA graph."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import cast

import torch
from torch import Tensor, nn

from upright.attacks import CandidateSearch
from upright.checks import Model
from upright.data import LabelledImages
from upright.models import FusedResNet, ResNet, build_network, can_fuse, has_triton
from upright.objective import LossTerms, Objective, make_loss
from upright.seeds import seed_for
from upright.train.batches import Batches, augment
from upright.train.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from upright.train.recipe import Recipe
from upright.train.weights import load_weights, model_tensors

__all__ = ["PLAIN", "Learner", "SlowPath", "Speed"]

PARTS = tuple(field.name for field in fields(LossTerms) if field.name != "poses")


class SlowPath(UserWarning):
    """A measure that would make training faster cannot be used here."""


@dataclass(frozen=True)
class Speed:
    """What makes a step fast on a GPU. It changes the time of a step and, but for rounding,
    nothing else."""

    graph: bool = True
    """Capture the whole step in a CUDA graph, and replay it."""
    compile: bool = True
    """Compile the network."""
    kernels: bool = True
    """Search with one kernel for each convolution, where the network has such kernels."""

    def possible_on(self, device: torch.device) -> Speed:
        """Leave out what the device cannot do, and say so."""
        if device.type != "cuda":
            return PLAIN
        if (self.compile or self.kernels) and not has_triton():
            warnings.warn("Triton is missing: networks are not compiled", SlowPath, stacklevel=2)
            return replace(self, compile=False, kernels=False)
        return self


PLAIN = Speed(graph=False, compile=False, kernels=False)


class Learner:
    """What a run changes as it goes: weights, buffers and what the optimiser keeps; and how it
    takes a step."""

    def __init__(
        self, recipe: Recipe, data: LabelledImages, device: torch.device, speed: Speed = PLAIN
    ) -> None:
        self.recipe, self.device, self.speed = recipe, device, speed
        if speed.graph:
            torch.backends.cudnn.benchmark = True  # shapes never change: look for the fastest
        torch.manual_seed(seed_for(recipe.seed, "weights", 0))
        self.model = build_network(
            recipe.model,
            classes=len(recipe.outputs(data.classes)),
            channels=data.images.shape[1],
        ).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model.train()
        self.optimizer = make_optimizer(self.model, recipe, device)
        self._batches = Batches(len(data), recipe)
        self._images, self._labels = data.images.to(device), data.labels.to(device)
        self._rows = torch.zeros(recipe.batch, dtype=torch.long, device=device)
        self._generator = torch.Generator(device)
        self._loss = make_loss(recipe.objective, recipe.space, generator=self._generator)
        self._forward: Model = InPrecision(self.model, recipe.precision)
        if speed.compile:
            self._forward = torch.compile(self._forward, dynamic=False)
        self._search_model = self._make_search_model()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._sums: dict[str, Tensor] = {}
        self._steps = 0

    def _make_search_model(self) -> Model | None:
        """A faster network for searches that need no gradient, where there is one."""
        objective = self._loss.objective
        searches = isinstance(objective, Objective) and isinstance(
            objective.attack, CandidateSearch
        )
        half = self.recipe.precision == "bfloat16"
        if not (self.speed.kernels and searches and half and can_fuse(self.model)):
            return None
        return FusedResNet(cast(ResNet, self.model))

    def step(self, step: int) -> None:
        """Take one step; what is drawn in it depends on the recipe and the step alone."""
        if self.speed.graph and self._graph is None:
            self._try_to_capture()
        self._prepare(step)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._compute()
        self._steps += 1

    def _prepare(self, step: int) -> None:
        """Set all in which one step differs from another."""
        seed = seed_for(self.recipe.seed, "step", step)
        self._generator.manual_seed(seed)
        torch.manual_seed(seed)  # for networks with dropout
        self._rows.copy_(self._batches.rows(step), non_blocking=True)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.recipe.learning_rate_at(step))

    def _compute(self) -> None:
        """Search, forward, backward and update, with nothing that waits for the device."""
        images = augment(self._images[self._rows].float() / 255, self.recipe, self._generator)
        terms = self._loss(
            self._forward, images, self._labels[self._rows], search_model=self._search_model
        )
        self.optimizer.zero_grad(set_to_none=True)
        terms.total.backward()
        self.optimizer.step()
        for part in PARTS:
            value = getattr(terms, part)
            if value is not None:
                self._sums.setdefault(part, torch.zeros_like(value.detach())).add_(value.detach())

    def _try_to_capture(self) -> None:
        """Record a step, or go on without where it holds what a graph cannot: a look at a value."""
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        try:
            self._graph = self._capture()
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            warnings.warn(f"no CUDA graph of the step: {reason}", SlowPath, stacklevel=2)
            self.speed = replace(self.speed, graph=False)
        self.restore(before)
        self._forget()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record a step, after a few that compile and warm up."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._prepare(0)
                self._compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph):
            self._compute()
        return graph

    def means(self) -> dict[str, float]:
        """Give the mean of each part of the loss since the last call."""
        means = {part: float(total) / max(1, self._steps) for part, total in self._sums.items()}
        self._forget()
        return means

    def _forget(self) -> None:
        for total in self._sums.values():
            total.zero_()
        self._steps = 0

    def is_sane(self) -> bool:
        """Whether every loss since the last call of ``means`` was finite."""
        return bool(self._sums["total"].isfinite())

    def state(self) -> dict[str, Tensor]:
        """Give all that has to be kept, by name."""
        kept = optimizer_tensors(self.model, self.optimizer, self.recipe)
        return model_tensors(self.model) | kept

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state that was kept; in place, since a graph knows tensors by their place."""
        load_weights(self.model, tensors)
        load_optimizer(self.model, self.optimizer, self.recipe, tensors)


class InPrecision(nn.Module):
    """Runs the network, and nothing around it, in the recipe's precision."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model, self.half_precision = model, precision == "bfloat16"

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.half_precision):
            return self.model(images)  # type: ignore[no-any-return]
