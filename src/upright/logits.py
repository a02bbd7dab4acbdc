"""Ask a model for logits, in whichever of the usual ways it gives them.

A tensor is the logits. Of a mapping or an object it is what is called ``logits``, as in Hugging
Face's ``ModelOutput`` and torchvision's ``InceptionOutputs``; of a plain tuple or list the first
item, since what follows (auxiliary heads, features) comes after it by custom.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from upright.checks import Model, check_logits

__all__ = ["ask", "logits_of"]


def ask(model: Model, images: Tensor) -> Tensor:
    """Ask a model for the logits of images, and check their shape."""
    logits = logits_of(model(images))
    check_logits(logits, len(images))
    return logits


def logits_of(answer: object) -> Tensor:
    """Give the logits in a model's answer.

    >>> import torch
    >>> logits_of({"logits": torch.zeros(2, 10), "features": torch.zeros(2, 64)}).shape
    torch.Size([2, 10])
    """
    found = _inside(answer)
    if isinstance(found, Tensor):
        return found
    raise ValueError(
        f"the model must return logits of shape [images, classes], but returned "
        f"{_described(answer)}; wrap it in a function that does"
    )


def _inside(answer: object) -> object:
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, Mapping):
        return answer.get("logits")
    named = getattr(answer, "logits", None)
    if named is None and isinstance(answer, tuple | list) and answer:
        return answer[0]
    return named


def _described(answer: object) -> str:
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        return f"a {kind} with {', '.join(map(str, answer)) or 'nothing'}"
    return kind
