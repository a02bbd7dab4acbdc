"""Ask a model for logits, in whichever of the usual ways it takes images and gives them.

A tensor is the logits. Of a mapping or an object it is what is called ``logits``, as in Hugging
Face's ``ModelOutput`` and torchvision's ``InceptionOutputs``; of a plain tuple or list the first
item, since what follows (auxiliary heads, features) comes after it by custom.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from upright.checks import Model, check_logits, explain_channels
from upright.tiles import is_out_of_memory
from upright.tracing import is_traced

__all__ = ["COARSE", "Asker", "ask", "logits_of", "rounding_of", "widened"]


COARSE = 0.02
"""What rounding may change of logits, as a part of the largest, where numbers have few digits."""


def rounding_of(logits: Tensor) -> float:
    """How much of the largest another order of sums may change, as of another size of batch.

    It is coarse in half precision, and on a GPU, which may take float32 for less.
    """
    few_digits = logits.is_cuda or logits.dtype in (torch.float16, torch.bfloat16)
    return COARSE if few_digits else 1e-4


def ask(model: Model, images: Tensor) -> Tensor:
    """Ask a model for the logits of images, and check their shape."""
    try:
        answer = model(images)
    except RuntimeError as error:
        explain_channels(images, error)
        raise
    logits = logits_of(answer)
    check_logits(logits, len(images))
    return logits


class Asker:
    """Asks models as ``ask`` does, and remembers which want images in the dtype of their weights.

    A model that takes images as they are gets them so, and may convert them itself.
    """

    def __init__(self) -> None:
        self._dtypes: WeakKeyDictionary[nn.Module, torch.dtype] = WeakKeyDictionary()
        self._met: WeakSet[nn.Module] = WeakSet()

    def __call__(self, model: Model, images: Tensor) -> Tensor:
        """Ask a model; where it refuses images, once more in the dtype of its weights."""
        if not isinstance(model, nn.Module):
            return ask(model, images)
        shown = images.to(self._dtypes.get(model, images.dtype))
        if model not in self._met and not is_traced():
            self._met.add(model)
            shown = shown.clone()  # what refuses them may have written into them before
        try:
            return ask(model, shown)
        except RuntimeError as error:
            wanted = _dtype_of(model)
            if is_out_of_memory(error) or wanted in (None, shown.dtype):
                raise
        self._dtypes[model] = wanted
        return ask(model, images.to(wanted))

    def dtype_for(self, model: object) -> torch.dtype | None:
        """Give the dtype in which a model wants images; None where it takes them as they are."""
        return self._dtypes.get(model) if isinstance(model, nn.Module) else None

    def __reduce__(self) -> tuple[type[Asker], tuple[()]]:
        """Copies learn by themselves: their models are copies too."""
        return Asker, ()


def widened(logits: Tensor) -> Tensor:
    """Give logits to add up: a sum in half precision would lose what they differ in."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def logits_of(answer: object) -> Tensor:
    """Give the logits in a model's answer.

    >>> import torch
    >>> logits_of({"logits": torch.zeros(2, 10), "features": torch.zeros(2, 64)}).shape
    torch.Size([2, 10])
    """
    found = _inside(answer)
    if isinstance(found, Tensor):
        # As networks end that are convolutions to the last: N x classes x 1 x 1.
        return found.flatten(1) if found.ndim > 2 and found.shape[2:].numel() == 1 else found
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


def _dtype_of(model: nn.Module) -> torch.dtype | None:
    """The dtype of a module's weights; None where they have several."""
    dtypes = {weight.dtype for weight in model.parameters() if weight.dtype.is_floating_point}
    return dtypes.pop() if len(dtypes) == 1 else None


def _described(answer: object) -> str:
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        return f"a {kind} with {', '.join(map(str, answer)) or 'nothing'}"
    return kind
