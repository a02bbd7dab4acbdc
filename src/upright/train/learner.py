"""A network, its optimiser and one step of training, plain or as one CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import cast

import torch
from torch import Tensor, nn

from upright.callers import warn_caller
from upright.checks import Model
from upright.data import LabelledImages
from upright.models import (
    FusedResNet,
    FusedTraining,
    ResNet,
    can_fuse,
    settle_compiler,
)
from upright.objective import LossTerms, make_loss
from upright.ranks import ALONE, Ranks
from upright.seeds import seed_for
from upright.train.average import Average
from upright.train.batches import Batches, augmented_rows, check_cutout, mixing_shares
from upright.train.global_norm import with_global_norms
from upright.train.network import (
    build,
    check_outputs,
    is_brought,
    is_registered_by_user,
    model_tensors,
    restore_tensors,
)
from upright.train.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from upright.train.parallel import OfPart, average_buffers, batch_part, synchronised
from upright.train.pretrained import start_from_pretrained
from upright.train.recipe import Recipe
from upright.train.targets import mixed, soft_labels
from upright.train.teacher import Teacher, asked_in_each_step, asked_once, pays_at_once
from upright.train.teacher_network import check_teacher, find_teacher
from upright.triton_support import has_triton
from upright.window import Window

__all__ = ["PLAIN", "Learner", "SlowPath", "Speed", "seeding_on"]

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
    """Compile the network, where it has no kernels of its own."""
    kernels: bool = True
    """Run the network by kernels of its own, where it has such: in bfloat16 a ResNet does."""

    def possible_on(self, device: torch.device) -> Speed:
        """Leave out what the device cannot do, and say so."""
        if device.type != "cuda":
            return PLAIN
        if (self.compile or self.kernels) and not has_triton():
            warn_caller("Triton is missing: networks are not compiled", SlowPath)
            return replace(self, compile=False, kernels=False)
        return self


PLAIN = Speed(graph=False, compile=False, kernels=False)


class Learner:
    """What a run changes as it goes: weights, buffers and what the optimiser keeps; and how it
    takes a step."""

    def __init__(
        self,
        recipe: Recipe,
        data: LabelledImages,
        device: torch.device,
        speed: Speed = PLAIN,
        *,
        ranks: Ranks = ALONE,
        sync_batch_norm: bool = False,
    ) -> None:
        self.recipe, self.device, self.speed = recipe, device, speed
        Window.of(data.images, recipe.view)  # or there is nothing to see
        check_cutout(recipe, data.images)
        check_teacher(recipe, data)
        if len(recipe.outputs(data.classes)) < 2 and not recipe.is_locnet:
            raise ValueError(
                f"{recipe.data} has one class, {data.classes[0]}, and there is nothing to tell "
                "apart; of a folder each class is a folder inside of it"
            )
        self.ranks, self._part = ranks, batch_part(recipe, ranks)
        if speed.graph:
            torch.backends.cudnn.benchmark = True  # shapes never change: look for the fastest
        torch.manual_seed(seed_for(recipe.seed, "weights", 0))
        self.model = build(
            recipe.model,
            classes=len(recipe.outputs(data.classes)),
            channels=data.images.shape[1],
        )
        self.fresh = ""
        """Which layer does not start from the recipe's weights, in a line; empty for none."""
        if recipe.pretrained:
            outputs = len(recipe.outputs(data.classes))
            self.fresh = start_from_pretrained(self.model, recipe, outputs)
        self.model.to(device)
        if is_brought(recipe.model) or is_registered_by_user(recipe.model):
            check_outputs(self.model, recipe, data, device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if sync_batch_norm and not ranks.alone:
            with_global_norms(self.model, ranks)
        self.model.train()
        self.optimizer = make_optimizer(self.model, recipe, device)
        self._average = Average(self.model, device) if recipe.average else None
        self._batches = Batches(len(data), recipe, device)
        self._data = LabelledImages(data.images.to(device), data.labels.to(device), data.classes)
        self._teacher: Teacher | None = None
        self._rows = torch.zeros(len(self._part), dtype=torch.long, device=device)
        self._others = self._rows.clone()
        self._generator = OfPart.on(device, self._part)
        self._seed_network = seeding_on(device)
        self._loss = make_loss(
            recipe.objective,
            recipe.space,
            interpolation=recipe.interpolation,
            view=recipe.view,
            generator=self._generator,
        )
        self._weights_held: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        forward, search = self._make_passes()
        # A search synchronises nothing: it has no gradients of weights.
        self._forward, self._search_model = synchronised(forward, ranks), search or forward
        # Makes the mean over ranks the mean over images, also where parts differ in size.
        self._weight = torch.tensor(ranks.size * self._part.fraction, device=device)
        # A stream of its own: several runs on one card work at the same time.
        self._stream = torch.cuda.Stream(device) if speed.graph else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._rate: float | None = None
        self._sums: dict[str, Tensor] = {}
        self._steps = 0

    def _make_passes(self) -> tuple[Model, Model | None]:
        """Give the network as training calls it, and a stand-in for searches where it has one."""
        if self.speed.kernels and self.recipe.precision == "bfloat16" and can_fuse(self.model):
            model = cast(ResNet, self.model)
            fused = FusedTraining(model)
            self._weights_held = fused.layers.held
            return fused, FusedResNet(model, layers=fused.layers)
        forward = InTrainingPrecision(self.model, self.recipe.precision)
        if self.speed.compile:
            settle_compiler()
            return cast(Model, torch.compile(forward, dynamic=False)), None
        return forward, None

    def _make_teacher(self) -> Teacher:
        """Give the recipe's teacher as steps ask it."""
        recipe = self.recipe
        found = find_teacher(recipe.teacher)
        network, view = found.load().to(self.device).requires_grad_(False), found.recipe.view
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        teacher: Model = InTrainingPrecision(network, recipe.precision).eval()
        if pays_at_once(recipe, self._data, recipe.steps * len(self._part)):
            return asked_once(teacher, view, recipe, self._data)
        if self.speed.compile:
            settle_compiler()
            teacher = cast(Model, torch.compile(teacher, dynamic=False))
        return asked_in_each_step(teacher, view)

    def make_ready(self) -> None:
        """Ask the teacher, compile and record what the steps replay, where it was not done."""
        if self.recipe.teacher and self._teacher is None:
            self._teacher = self._make_teacher()
        if self.speed.graph and self._graph is None:
            torch.cuda.synchronize(self.device)
            with self._on_stream():
                self._try_to_capture()
            torch.cuda.synchronize(self.device)

    def step(self, step: int) -> None:
        """Take one step; what is drawn in it depends on the recipe and the step alone."""
        self.make_ready()
        with self._on_stream():
            self._prepare(step)
            if self._graph is not None:
                self._graph.replay()
            else:
                self._compute()
        self._steps += 1

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Work on the stream of this run, on its device."""
        if self._stream is None:
            yield
            return
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield

    def _prepare(self, step: int) -> None:
        """Set all in which one step differs from another."""
        seed = seed_for(self.recipe.seed, "step", step)
        self._generator.manual_seed(seed)
        # For networks with dropout; no two ranks drop alike.
        self._seed_network(seed_for(seed, "rank", self.ranks.rank) if self.ranks.rank else seed)
        rows = self._batches.rows(step)
        self._rows.copy_(self._part.take(rows), non_blocking=True)
        if self.recipe.mixup:
            self._others.copy_(self._part.take(rows.roll(1)), non_blocking=True)
        if self._average is not None:
            self._average.set_rate(self.recipe.average_rate_at(step))
        rate = self.recipe.learning_rate_at(step)
        if rate != self._rate:
            for group in self.optimizer.param_groups:
                group["lr"].fill_(rate)
            self._rate = rate

    def _compute(self) -> None:
        """Search, forward, backward and update, with nothing that waits for the device."""
        images, labels = self._batch()
        with self._weights_held():
            terms = self._loss(self._forward, images, labels, search_model=self._search_model)
        self.optimizer.zero_grad(set_to_none=True)
        terms.total.backward(self._weight.to(terms.total))
        self.optimizer.step()
        average_buffers(self.model, self._part, self.ranks)
        if self._average is not None:
            self._average.update()
        self._add_to_sums(terms)

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Give the images of a step, and what the network is asked to say of them."""
        images, labels = self._examples(self._rows)
        if not self.recipe.mixup:
            return images, labels
        others, other_labels = self._examples(self._others)
        shares = mixing_shares(self.recipe, self._generator, len(images))
        return mixed(images, labels, others, other_labels, shares)

    def _examples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Give images as they are augmented, with labels, or with probabilities of all classes."""
        recipe, data = self.recipe, self._data
        batch = augmented_rows(data, rows, recipe, self._generator)
        if not recipe.softens_labels:
            return batch.images, batch.labels
        said = None if self._teacher is None else self._teacher(batch)
        return batch.images, soft_labels(recipe, batch.labels, len(data.classes), said)

    def _add_to_sums(self, terms: LossTerms) -> None:
        values = {part: getattr(terms, part) for part in PARTS}
        found = {part: value.detach() for part, value in values.items() if value is not None}
        if not self._sums:
            self._sums = {part: torch.zeros_like(value) for part, value in found.items()}
        torch._foreach_add_(list(self._sums.values()), list(found.values()))

    def _try_to_capture(self) -> None:
        """Record a step, or go on without where it holds what a graph cannot: a look at a value."""
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        try:
            self._graph = self._capture()
        except torch.OutOfMemoryError:
            raise  # fewer runs side by side may fit; slowly, this one would not
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            warn_caller(f"no CUDA graph of the step: {reason}", SlowPath)
            self.speed = replace(self.speed, graph=False)
        self.restore(before)
        self._forget()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record a step, after a few that compile and warm up.

        On the stream on which it is replayed: libraries keep a workspace for each stream, and two
        runs that work at the same time must not share one.
        """
        torch.cuda.synchronize(self.device)
        for _ in range(3):
            self._prepare(0)
            self._compute()
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, stream=self._stream):
            self._compute()
        return graph

    def means(self) -> dict[str, float]:
        """Give the mean of each part of the loss since the last call."""
        with self._on_stream():
            steps = max(1, self._steps)
            means = {part: float(self._over_ranks(part)) / steps for part in self._sums}
            self._forget()
        return means

    def _over_ranks(self, part: str) -> Tensor:
        """The sum over steps of a part of the loss, as the mean over the images of all ranks."""
        return self.ranks.sum(self._sums[part] * self._part.fraction)

    def _forget(self) -> None:
        for total in self._sums.values():
            total.zero_()
        self._steps = 0

    def is_sane(self) -> bool:
        """Whether every loss since the last call of ``means`` was finite."""
        with self._on_stream():
            return bool(self._over_ranks("total").isfinite())

    def state(self) -> dict[str, Tensor]:
        """Give all that has to be kept, by name."""
        if self._stream is not None:
            self._stream.synchronize()
        kept = optimizer_tensors(self.model, self.optimizer, self.recipe)
        average = {} if self._average is None else self._average.state()
        return model_tensors(self.model) | kept | average

    def result(self) -> nn.Module:
        """Give the network that comes out, in evaluation mode; no step can be taken after."""
        if self._stream is not None:
            self._stream.synchronize()
        if self._average is not None:
            self._average.apply()
        return self.model.eval()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state that was kept; in place, since a graph knows tensors by their place."""
        if self._stream is not None:  # what is still being computed elsewhere must be done first
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with self._on_stream():
            self._restore(tensors)

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        restore_tensors(self.model, tensors)
        load_optimizer(self.model, self.optimizer, self.recipe, tensors)
        if self._average is not None:
            self._average.restore(tensors)


def seeding_on(device: torch.device) -> Callable[[int], object]:
    """Give what seeds a network's own draws, such as those of dropout.

    ``torch.manual_seed`` looks at every kind of device that there might be, which takes longer than
    all else that the host does in a step.
    """
    if device.type not in ("cpu", "cuda"):
        return torch.manual_seed
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    return lambda seed: [generator.manual_seed(seed) for generator in generators]


class InTrainingPrecision(nn.Module):
    """Runs the network, and nothing around it, in the recipe's precision."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model, self.half_precision = model, precision == "bfloat16"

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.half_precision):
            return self.model(images)  # type: ignore[no-any-return]
