"""Several models as one: the mean of their logits."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from upright.checks import Model, check_float_images, warn_if_probabilities
from upright.composed import Change, Composed, each_network
from upright.identity import as_module
from upright.logits import Asker, widened
from upright.tracing import have_values

__all__ = ["Ensemble", "ensemble"]


class Ensemble(Composed):
    """A model that answers with the mean logits of some models; made by ``ensemble``."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__()
        self.names = tuple(f"member{place}" for place in range(len(models)))
        for name, model in zip(self.names, models, strict=True):
            setattr(self, name, as_module(model))  # by itself, so that torch finds its weights
        self._ask = Asker()  # members may want other dtypes
        self._looked = False
        self.training = any(isinstance(each, nn.Module) and each.training for each in models)

    @property
    def members(self) -> tuple[Model, ...]:
        return tuple(getattr(self, name) for name in self.names)

    def each_network(self, change: Change) -> Ensemble:
        return Ensemble([each_network(member, change) for member in self.members]).eval()

    def forward(self, images: Tensor) -> Tensor:
        # Copies: a member may write into what it is given.
        check_float_images(images)  # members that want another dtype would be given bytes
        first, *others = self.members
        total = self._answer(first, images.clone()).clone()  # another may write where it answered
        for member in others:
            logits = self._answer(member, images.clone())
            if logits.shape != total.shape:
                raise ValueError(
                    f"the models of an ensemble need the same classes, but answer with "
                    f"{total.shape[1]} and {logits.shape[1]}"
                )
            total = total + logits
        self._looked |= have_values()
        return total / len(self.names)

    def _answer(self, member: Model, images: Tensor) -> Tensor:
        """Ask a member; probabilities would count for next to nothing beside another's logits."""
        logits = widened(self._ask(member, images))
        if not self._looked and have_values():
            warn_if_probabilities(logits)
        return logits


def ensemble(*models: Model) -> Ensemble:
    """Let several models answer as one, with the mean of their logits.

    Args:
        models: callables from float images in [0, 1], N x C x H x W, to logits of the same classes.

    >>> import torch
    >>> three = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5)) for _ in range(3)]
    >>> ensemble(*(model.eval() for model in three))(torch.rand(2, 3, 2, 2)).shape
    torch.Size([2, 5])
    """
    if not models or not all(map(callable, models)):
        raise ValueError("an ensemble needs models; give them one by one, as in ensemble(a, b)")
    return Ensemble(models)
