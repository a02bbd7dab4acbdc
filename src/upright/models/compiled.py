"""Any model compiled, for an evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from upright.checks import Model
from upright.identity import as_module
from upright.logits import ask
from upright.tiles import is_out_of_memory, usual_batch

__all__ = ["Compiled", "settle_compiler"]


class Compiled(nn.Module):
    """A model as PyTorch compiles it, for batches of any size.

    Each size would be compiled anew, and those of an evaluation differ. So two are: the batch that
    an evaluation fills where it can, and a quarter of it. A batch is cut into quarters, or taken
    whole where it has four; what is missing, of at most half a quarter, is filled up with images of
    the same batch, whose answers are cut off. Fewer images are asked of the model as it is.

    The model is one for which images of a batch are independent, as in evaluation mode. It is
    compiled once more for each size where an attack wants gradients.

    Args:
        model: any callable from float images to logits.
        batch_size: how many images come at once at most; without, as an evaluation chooses.
        backend: what compiles, see ``torch.compile``.
    """

    def __init__(
        self,
        model: Model,
        *,
        batch_size: int | None = None,
        backend: str | Callable[..., Any] = "inductor",
    ) -> None:
        super().__init__()
        settle_compiler()
        self.training = False  # of itself: whether the model is in training mode is its own affair
        self.model, self.batch_size = as_module(model), batch_size
        # Of a method: a compiled module would be a second part with the same weights.
        self._compiled = torch.compile(self._answer, dynamic=False, backend=backend)
        self._taken: set[torch.dtype] = set()
        """In which dtypes the model takes images."""

    def forward(self, images: Tensor) -> Tensor:
        self._check_dtype(images)
        quarter = -(-(self.batch_size or usual_batch(images)) // 4)
        answers = [self._ask(piece, quarter) for piece in _pieces(images, quarter)]
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _check_dtype(self, images: Tensor) -> None:
        """Let the model itself refuse images in a dtype: a compiler would trace it first."""
        if images.dtype not in self._taken:
            with torch.no_grad():
                ask(self.model, images[:1])
            self._taken.add(images.dtype)

    def _ask(self, piece: Tensor, quarter: int) -> Tensor:
        """Ask about one piece, in a size that is compiled if it nearly has it."""
        missing = (quarter if len(piece) <= quarter else 4 * quarter) - len(piece)
        if _is_far(missing, quarter):
            return ask(self.model, piece)
        # Images of the same batch: they lie in memory as the others do.
        filled = torch.cat((piece, piece[:missing])) if missing else piece
        try:
            return ask(self._compiled, filled)[: len(piece)]
        # The last two: it imports what it finds, such as a folder that is called as a library.
        except (torch._dynamo.exc.TorchDynamoException, AttributeError, ImportError) as error:
            if is_out_of_memory(error):
                raise
            inner = getattr(error, "inner_exception", error)
            reason = str(inner).strip().partition("\n")[0]
            raise ValueError(
                f"the model cannot be compiled ({reason}); evaluate it without --compile"
            ) from error

    def _answer(self, images: Tensor) -> Any:
        return self.model(images)

    def get_extra_state(self) -> str:
        """Compiled, sums are rounded otherwise: one stored evaluation has answers of one kind."""
        return "compiled"

    def set_extra_state(self, state: str) -> None:
        if state != "compiled":
            raise ValueError(f"this model is compiled, and the state is of one that is {state}")


def _pieces(images: Tensor, quarter: int) -> Iterator[Tensor]:
    """Cut images into whole batches, of four quarters, and what is no such into quarters."""
    for part in images.split(4 * quarter):
        if _is_far(4 * quarter - len(part), quarter):
            yield from part.split(quarter)
        else:
            yield part


def _is_far(missing: int, quarter: int) -> bool:
    """Whether so many images are more than one would ask about in vain."""
    return 2 * missing > quarter


def settle_compiler() -> None:
    """Room for the shapes of all networks of a process; and no advice.

    They share what was compiled of the same code. The compiler advises to round the inputs of
    products to TF32: which precision a network has is another's to say.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
