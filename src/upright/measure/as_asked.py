"""A model as a question has it asked: its weights laid out, in some precision, compiled."""

from __future__ import annotations

from torch import Tensor, nn

from upright.checks import Model
from upright.composed import each_network
from upright.evaluation import Question
from upright.measure.classes import count_outputs
from upright.models import (
    Compiled,
    InHalfPrecision,
    can_fuse,
    in_half_precision,
    lay_as_usual,
    lay_channels_last,
)
from upright.tiles import is_out_of_memory

__all__ = ["as_asked", "in_precision"]


def as_asked(
    model: Model, question: Question, image: Tensor, *, batch_size: int | None = None
) -> Model:
    """Give the model as it is to be asked, on the device of an image as it will see them."""
    ready = in_precision(question, laid_out(model, question, image))
    return _compiled(ready, batch_size) if question.compile else ready


def laid_out(model: Model, question: Question, image: Tensor) -> Model:
    """Let convolutions lie channels last where that is faster, and the model can be asked so.

    That is on a CPU, and on a GPU in half precision, where no kernels of ours stand in for them.
    Some models can not: ``view`` takes what a convolution gives for rows of numbers that lie side
    by side, and refuses what does not.
    """
    turned = list[nn.Conv2d]()

    def lay(network: Model) -> Model:
        if isinstance(network, nn.Module) and not can_fuse(network):
            turned.extend(lay_channels_last(network))
        return network

    on_gpu_in_half = image.is_cuda and question.precision != "float32"
    if image.device.type != "cpu" and not on_gpu_in_half:
        return model
    laid = each_network(model, lay)
    if turned and not _takes(laid, image):
        lay_as_usual(turned)
    return laid


def _takes(model: Model, image: Tensor) -> bool:
    """Whether a model answers. It is asked about two images: those of one lie side by side."""
    try:
        count_outputs(model, image.expand(2, -1, -1, -1))
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        return False
    return True


def in_precision(question: Question, model: Model) -> Model:
    """Give the model in the precision in which it is to be evaluated.

    Of a two-stage model that is each network, by its own kernels where it has such. The pose
    between them, and the warp by it, stay in float32: a pose in half precision would be a grid.
    What float16 does to a LocNet's outputs is a small part of its own error, which a test
    holds: 2⁻¹¹ of the limits are 0.015 degrees and 0.0015 px. In bfloat16 it is eight times so.
    """
    precision = question.precision
    if precision == "float32":
        return model
    return each_network(model, lambda network: in_half_precision(network, precision))


def _compiled(model: Model, batch_size: int | None) -> Model:
    """Give the model with each of its networks compiled, but for those with kernels of ours."""

    def compiled(network: Model) -> Model:
        if isinstance(network, InHalfPrecision) and network.has_kernels:
            return network
        return Compiled(network, batch_size=batch_size)

    return each_network(model, compiled)
