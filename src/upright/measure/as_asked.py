"""A model as a question has it asked: its weights laid out, in some precision, compiled."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from upright.checks import Model
from upright.composed import each_network, networks_of
from upright.data import LabelledImages
from upright.evaluation import Question
from upright.logits import rounding_of
from upright.measure.classes import first_image, logits_as_asked
from upright.models import (
    Compiled,
    InHalfPrecision,
    can_fuse,
    in_half_precision,
    laid_as_usual,
    lay_as_usual,
    lay_channels_last,
)
from upright.tiles import is_out_of_memory

__all__ = ["as_asked"]


def as_asked(
    model: Model,
    question: Question,
    data: LabelledImages,
    device: torch.device,
    *,
    batch_size: int | None = None,
) -> Model:
    """Give the model, which is on a device, as a question about some images has it asked there."""
    _lay_out(model, question, first_image(data, question, device))
    ready = _in_precision(question, model)
    return _compiled(ready, batch_size) if question.compile else ready


def _lay_out(model: Model, question: Question, image: Tensor) -> None:
    """Let convolutions lie channels last where that is faster, and the model answers the same.

    That is on a CPU, and on a GPU in half precision, where no kernels of ours stand in for them.
    Some models can not: ``view`` takes images, or what a convolution gives, for rows of numbers
    that lie side by side, and refuses what does not; ``as_strided`` reads other numbers.
    """
    on_gpu_in_half = image.is_cuda and question.precision != "float32"
    if image.device.type != "cpu" and not on_gpu_in_half:
        return
    found = [
        convolution
        for network in networks_of(model)
        if not can_fuse(network)
        for convolution in laid_as_usual(network)
    ]
    if not found:
        return
    images = image.expand(2, -1, -1, -1)  # those of one lie side by side either way
    before = logits_as_asked(model, question, images)
    lay_channels_last(nn.ModuleList(found))
    if not _answers(model, question, images, before):
        lay_as_usual(found)


def _answers(model: Model, question: Question, images: Tensor, expected: Tensor) -> bool:
    """Whether a model answers, and as is expected: up to rounding, by another order of sums."""
    try:
        found = logits_as_asked(model, question, images)
    except Exception as error:  # whatever its own checks raise
        if is_out_of_memory(error):
            raise
        return False
    # A class that is left out, minus infinity, has no size.
    most = rounding_of(found) * float(expected.nan_to_num(neginf=0.0).abs().max())
    if not math.isfinite(most):
        return False  # what is no number is told where it is asked for
    return torch.allclose(found, expected, rtol=0, atol=most, equal_nan=True)


def _in_precision(question: Question, model: Model) -> Model:
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
