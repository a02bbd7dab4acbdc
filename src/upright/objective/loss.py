"""The loss of an objective, for the trainer and for a user's own loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.attacks import CandidateSearch, Score, pick_worst
from upright.checks import Model
from upright.logits import ask
from upright.objective.product import Batch, Objective, Target
from upright.pose import Pose
from upright.space import PAPER, TransformSpace
from upright.warp import Fill, Interpolation, warp

__all__ = ["LossTerms", "RegularizedLoss", "evaluation_mode"]


@dataclass(frozen=True)
class LossTerms:
    """What a training step minimises, and its parts. A part that was not needed is None."""

    total: Tensor
    """What to call ``backward`` on."""
    natural_loss: Tensor | None
    """Mean cross-entropy of the originals."""
    transformed_loss: Tensor | None
    """Mean cross-entropy of the transformed images."""
    penalty: Tensor | None
    """Mean penalty, before its weight."""
    natural_accuracy: Tensor | None
    """Share of the originals that are classified correctly, in training mode."""
    transformed_accuracy: Tensor | None
    """The same of the transformed images."""
    poses: dict[Target, Pose]
    """The poses found, by what they maximise, each of shape (draws x images,)."""


class RegularizedLoss(nn.Module):
    """The loss of an objective: ``loss(model, images, labels).total.backward()``.

    Images are float in [0, 1]. The search for x' runs the model in evaluation mode and leaves no
    trace in it; the training pass is one call of the model with originals and transformed images in
    one batch, so that both share the batch's statistics.

    The model should be an ``nn.Module``: any other callable is asked in the mode that it is in.

    Args:
        objective: what to minimise, or its name in the paper's notation.
        space: the poses to search.
        fill: what a pose uncovers, see ``warp``.
        interpolation: how images are resampled, see ``warp``.
        generator: poses are drawn from it, by default from one of its own with seed 0.
    """

    def __init__(
        self,
        objective: Objective | str,
        space: TransformSpace = PAPER,
        *,
        fill: Fill = "black",
        interpolation: Interpolation = "bilinear",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        parsed = Objective.parse(objective) if isinstance(objective, str) else objective
        self.objective, self.space = parsed, space
        self.fill: Fill = fill
        self.interpolation: Interpolation = interpolation
        self.generator = generator

    def extra_repr(self) -> str:
        return f"{self.objective}, {self.space}"

    def forward(
        self,
        model: Model,
        images: Tensor,
        labels: Tensor,
        *,
        search_model: Model | None = None,
    ) -> LossTerms:
        """Search for x', then compute the loss in one pass of the model.

        Args:
            model: from images to logits.
            images: float in [0, 1], N x C x H x W.
            labels: class numbers, N.
            search_model: a faster stand-in that answers as ``model`` does in evaluation mode.
        """
        objective = self.objective
        repeated = _repeated(images, objective.draws)
        poses = self._search(
            model if search_model is None else search_model,
            images,
            repeated,
            _repeated(labels, objective.draws),
        )
        different = list({id(pose): pose for pose in poses.values()}.values())
        parts = [images] if objective.sees_originals else []
        with torch.no_grad():
            parts += [self._warp(repeated, pose) for pose in different]
        answers = _answers(model, parts)
        natural = answers[0] if objective.sees_originals else None
        moved = answers[int(objective.sees_originals) :]
        transformed = dict(zip(map(id, different), moved, strict=True))
        by_target = {target: transformed[id(pose)] for target, pose in poses.items()}
        return _terms(objective, natural, by_target, labels, poses)

    def _warp(self, images: Tensor, pose: Pose) -> Tensor:
        return warp(images, pose, fill=self.fill, interpolation=self.interpolation)

    def _search(
        self, model: Model, images: Tensor, repeated: Tensor, labels: Tensor
    ) -> dict[Target, Pose]:
        """Find the pose of each image for each target, without a trace in the model."""
        attack, targets = self.objective.attack, self.objective.targets
        if attack is None or not targets:
            return {}
        space, count = self.space.in_pixels(*images.shape[-2:]), len(repeated)
        generator = self._generator(images.device)
        if self.objective.single_try:
            assert isinstance(attack, CandidateSearch)
            only = attack.candidates(space, count, generator=generator).stack()[0]
            return dict.fromkeys(targets, Pose.unstack(only.expand(count, 3)))
        with evaluation_mode(model), torch.no_grad():
            search = _Search(self, model, images, repeated, labels)
            if not isinstance(attack, CandidateSearch):
                return {
                    target: attack.worst_pose(
                        search.score(target), space, count, generator=generator
                    )
                    for target in targets
                }
            # One list serves both targets: each still sees draws from the same distribution.
            candidates = attack.candidates(space, count, generator=generator)
            logits = search.logits(candidates, with_originals="penalty" in targets)
            return {
                target: pick_worst(candidates, search.value(target, logits)).pose
                for target in targets
            }

    def _generator(self, device: torch.device) -> torch.Generator:
        if self.generator is None:
            self.generator = torch.Generator(device).manual_seed(0)
        return self.generator


@dataclass
class _Search:
    """The scores that attacks maximise in a training step."""

    loss: RegularizedLoss
    model: Model
    images: Tensor
    repeated: Tensor
    labels: Tensor

    @cached_property
    def originals(self) -> Tensor:
        """The logits of the originals."""
        with torch.no_grad():
            return _logits(self.model, self.images)

    def logits(self, pose: Pose, *, with_originals: bool = False) -> Tensor:
        """The logits under a pose; on the way also those of the originals, in the same call."""
        moved = self.loss._warp(self.repeated, pose)
        asked = moved.flatten(0, -4)
        if with_originals:
            answers = _logits(self.model, torch.cat((self.images, asked)))
            self.originals, answers = answers.split((len(self.images), len(asked)))
        else:
            answers = _logits(self.model, asked)
        return answers.reshape(*moved.shape[:-3], -1)

    def value(self, target: Target, logits: Tensor) -> Tensor:
        if target == "cross-entropy":
            labels = self.labels.expand(logits.shape[:-1])
            return F.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")
        assert self.loss.objective.penalty is not None
        originals = _repeated(self.originals, self.loss.objective.draws)
        return self.loss.objective.penalty(originals, logits)

    def score(self, target: Target) -> Score:
        return lambda pose: self.value(target, self.logits(pose))


def _terms(
    objective: Objective,
    natural: Tensor | None,
    transformed: dict[Target, Tensor],
    labels: Tensor,
    poses: dict[Target, Pose],
) -> LossTerms:
    repeated = _repeated(labels, objective.draws)
    shown = transformed.get(objective.batch_target, transformed.get(objective.penalty_target))
    natural_loss = None if natural is None else F.cross_entropy(natural, labels)
    transformed_loss = None if shown is None else F.cross_entropy(shown, repeated)
    total = _batch_loss(objective.batch, natural_loss, transformed_loss)
    penalty = None
    if objective.penalty is not None:
        assert natural is not None
        originals = _repeated(natural, objective.draws)
        penalty = objective.penalty(originals, transformed[objective.penalty_target]).mean()
        total = total.add(penalty, alpha=objective.weight)
    return LossTerms(
        total=total,
        natural_loss=natural_loss,
        transformed_loss=transformed_loss,
        penalty=penalty,
        natural_accuracy=None if natural is None else _accuracy(natural, labels),
        transformed_accuracy=None if shown is None else _accuracy(shown, repeated),
        poses=poses,
    )


def _batch_loss(batch: Batch, natural: Tensor | None, transformed: Tensor | None) -> Tensor:
    if batch == "nat":
        assert natural is not None
        return natural
    assert transformed is not None
    if batch == "rob":
        return transformed
    assert natural is not None
    return (natural + transformed) / 2


def _repeated(values: Tensor, times: int) -> Tensor:
    """All values so many times, one after another; without a copy where that is once."""
    return values if times == 1 else values.repeat(times, *[1] * (values.ndim - 1))


def _answers(model: Model, parts: list[Tensor]) -> tuple[Tensor, ...]:
    """Ask the model once; give the logits of each part."""
    if len(parts) == 1:
        return (_logits(model, parts[0]),)
    answers: tuple[Tensor, ...] = _logits(model, torch.cat(parts)).split([*map(len, parts)])
    return answers


def _logits(model: Model, images: Tensor) -> Tensor:
    """Ask the model; losses are never computed in half precision."""
    logits = ask(model, images)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(1) == labels).float().mean()


@contextlib.contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put a module into evaluation mode, its parameters out of reach of gradients; and undo both.

    Each part goes back to its own mode. Out of reach, since a compiled network would compute the
    gradients of its parameters beside those of the pose.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    wanted = [parameter.requires_grad for parameter in parameters]
    try:
        for module in modules:
            module.training = False
        for parameter in parameters:
            parameter.requires_grad = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for parameter, flag in zip(parameters, wanted, strict=True):
            parameter.requires_grad = flag
