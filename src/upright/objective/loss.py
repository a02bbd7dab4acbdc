"""The loss of an objective, for the trainer and for a user's own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from upright.attacks import CandidateSearch
from upright.checks import Model
from upright.logits import Asker
from upright.modes import climbing, evaluation_mode, joined, ordinary, without_synchronisation
from upright.objective.criterion import (
    Criterion,
    accuracy_of,
    ignored_by,
    is_cross_entropy,
    training_loss,
)
from upright.objective.draws import Draws
from upright.objective.inspection import Ask, Inspection
from upright.objective.product import BatchType, Objective, Target
from upright.objective.search import Search, repeated, room_for
from upright.penalties import penalties_of
from upright.pose import Pose
from upright.registry import is_ours
from upright.space import PAPER, Space
from upright.tiles import Room
from upright.warp import Fill, Interpolation, Resampling
from upright.window import Window

__all__ = ["LossTerms", "RegularizedLoss"]


@dataclass(frozen=True)
class LossTerms:
    """What a training step minimises, and its parts. A part that was not needed is None."""

    total: Tensor
    """What to call ``backward`` on."""
    natural_loss: Tensor | None
    """Cross-entropy of the originals: their mean, or what a criterion of one's own gives."""
    transformed_loss: Tensor | None
    """The same of the transformed images."""
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
        space: the poses to search, as a text such as ``shift(3px) rotate(30)``, or a ``Space``.
        criterion: takes the place of the cross-entropy, in the search and in the loss: an
            ``nn.CrossEntropyLoss`` with label smoothing or class weights, or any function of
            logits and labels that gives one loss for each image.
        fill: what a pose uncovers, see ``warp``.
        interpolation: how images are resampled, see ``warp``.
        view: the model sees the central so many pixels, see ``warp``.
        generator: poses are drawn from it. By default they follow from ``torch.manual_seed``, the
            rank and the number of the call, and ``state_dict`` holds how to go on.
        check: look at what is given: at all of the first batch, and of later ones at what costs
            nothing.
    """

    def __init__(
        self,
        objective: Objective | str,
        space: Space | str = PAPER,
        *,
        criterion: Criterion | None = None,
        fill: Fill = "black",
        interpolation: Interpolation = "bilinear",
        view: int | None = None,
        generator: torch.Generator | None = None,
        check: bool = True,
    ) -> None:
        super().__init__()
        parsed = Objective.parse(objective) if isinstance(objective, str) else objective
        self.objective, self.space = parsed, Space.of(space)
        if parsed.attack is not None:
            parsed.attack.check_space(self.space)
        self.criterion: Criterion = nn.CrossEntropyLoss() if criterion is None else criterion
        self.resampling = Resampling(fill, interpolation, view)
        self.draws = Draws(generator)
        self._inspection = Inspection() if check else None
        self._asker = Asker()
        self._rooms: dict[tuple[torch.device, torch.Size], Room] = {}

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
            labels: class numbers, N; or probabilities, N x classes, as mixup makes them. Images of
                the criterion's ``ignore_index``, by default -100, count in the penalty alone.
            search_model: a faster stand-in that answers as ``model`` does in evaluation mode.
        """
        objective, ask = self.objective, self._asking(images, labels)
        if labels.ndim == 1 and is_cross_entropy(self.criterion):
            labels = labels.long()
        searched = model if search_model is None else search_model
        poses = self._search(ask, searched, images, labels)
        self._look_at(poses.values(), images)
        different = list({id(pose): pose for pose in poses.values()}.values())
        copies = repeated(images, objective.draws)
        parts = [self._seen(images)] if objective.sees_originals else []
        # A part of what learns may stand before: then copies lead back to it as originals do.
        with torch.set_grad_enabled(torch.is_grad_enabled() and images.requires_grad):
            parts += [self.resampling(copies, pose) for pose in different]
        answers = _answers(partial(ask, model), parts)
        natural = answers[0] if objective.sees_originals else None
        moved = answers[int(objective.sees_originals) :]
        transformed = dict(zip(map(id, different), moved, strict=True))
        by_target = {target: transformed[id(pose)] for target, pose in poses.items()}
        terms = self._terms(natural, by_target, labels, poses)
        if self._inspection is not None:
            self._inspection.end(terms.penalty, objective.penalty)
        return terms

    def _asking(self, images: Tensor, labels: Tensor) -> Ask:
        """Check a batch, and give what asks models about it."""
        if self._inspection is None:
            return self._ask_widely
        return self._inspection.begin(self._ask_widely, images, labels, self.criterion)

    def _ask_widely(self, model: Model, images: Tensor) -> Tensor:
        """Ask a model; losses are never computed in half precision."""
        logits = self._asker(model, images)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _seen(self, images: Tensor) -> Tensor:
        """What the model sees of images as they are."""
        return Window.of(images, self.resampling.view).cut(images)

    def _space_of(self, images: Tensor) -> Space:
        return self.space.in_pixels(*Window.of(images, self.resampling.view).size)

    def _look_at(self, poses: Iterable[Pose], images: Tensor) -> None:
        """Look at what an attack of a user's own found."""
        attack, count = self.objective.attack, self.objective.draws * len(images)
        if self._inspection is not None and attack is not None and not is_ours(type(attack)):
            self._inspection.look_at_poses(
                f"search of {attack}", poses, self._space_of(images), count
            )

    def _search(self, ask: Ask, model: Model, images: Tensor, labels: Tensor) -> dict[Target, Pose]:
        """Find the pose of each image for each target, without a trace in the model."""
        attack, targets = self.objective.attack, self.objective.targets
        if attack is None or not targets:
            return {}
        space, generator = self._space_of(images), self.draws.next(images.device)
        if self.objective.single_try:
            assert isinstance(attack, CandidateSearch)
            count = self.objective.draws * len(images)
            only = attack.candidates(space, count, generator=generator)[0]
            return dict.fromkeys(targets, only.like(only.values.expand(count, -1)))
        with climbing(), evaluation_mode(model), without_synchronisation(model):
            search = Search(
                objective=self.objective,
                criterion=self.criterion,
                ask=partial(ask, model),
                move=self.resampling,
                room=self._rooms.setdefault((images.device, images.shape[-2:]), room_for(images)),
                images=ordinary(images),
                seen=ordinary(self._seen(images)),
                labels=ordinary(labels),
            )
            return search.worst_poses(space, generator)

    def _terms(
        self,
        natural: Tensor | None,
        transformed: dict[Target, Tensor],
        labels: Tensor,
        poses: dict[Target, Pose],
    ) -> LossTerms:
        objective, cost = self.objective, partial(training_loss, self.criterion)
        # Labels that nobody is to check are trusted to be classes: a count of them costs kernels.
        trusted = self._inspection is None
        accuracy = partial(accuracy_of, ignored=None if trusted else ignored_by(self.criterion))
        copied = repeated(labels, objective.draws)
        shown = transformed.get(objective.batch_target, transformed.get(objective.penalty_target))
        natural_loss = None if natural is None else cost(natural, labels)
        transformed_loss = None if shown is None else cost(shown, copied)
        total = _batch_loss(objective.batch, natural_loss, transformed_loss)
        penalty = None
        if objective.penalty is not None:
            assert natural is not None
            originals = repeated(natural, objective.draws)
            copies = transformed[objective.penalty_target]
            penalty = penalties_of(objective.penalty, originals, copies).mean()
            total = total.add(penalty, alpha=objective.weight)
        return LossTerms(
            total=total,
            natural_loss=natural_loss,
            transformed_loss=transformed_loss,
            penalty=penalty,
            natural_accuracy=None if natural is None else accuracy(natural, labels),
            transformed_accuracy=None if shown is None else accuracy(shown, copied),
            poses=poses,
        )


def _batch_loss(batch: BatchType, natural: Tensor | None, transformed: Tensor | None) -> Tensor:
    if batch == "nat":
        assert natural is not None
        return natural
    assert transformed is not None
    if batch == "rob":
        return transformed
    assert natural is not None
    return (natural + transformed) / 2


def _answers(ask: Callable[[Tensor], Tensor], parts: list[Tensor]) -> tuple[Tensor, ...]:
    """Ask the model once; give the logits of each part."""
    if len(parts) == 1:
        return (ask(parts[0]),)
    answers: tuple[Tensor, ...] = ask(joined(parts)).split([*map(len, parts)])
    return answers
