"""Any model in half precision, for an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor, nn

from upright.identity import as_module
from upright.models.fused import FusedResNet, can_fuse
from upright.models.resnet import ResNet

__all__ = ["InHalfPrecision", "in_half_precision"]


def in_half_precision(
    model: Callable[[Tensor], Tensor], precision: Literal["float16", "bfloat16"] = "float16"
) -> InHalfPrecision:
    """Run a model in half precision, for an evaluation; by kernels of ``fused`` where it can be.

    Under 775 poses an image is often near a boundary, so rounding decides: ``float16`` has three
    bits more than ``bfloat16``, and a trained network does not need the latter's range.
    """
    return InHalfPrecision(model, precision)


class InHalfPrecision(nn.Module):
    """A model in half precision, as it is now."""

    def __init__(
        self, model: Callable[[Tensor], Tensor], precision: Literal["float16", "bfloat16"]
    ) -> None:
        super().__init__()
        self.training = False  # of itself: whether the model is in training mode is its own affair
        self.model, self.precision = as_module(model), precision
        self._dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[precision]
        fuses = isinstance(model, ResNet) and can_fuse(model)
        self._fused = FusedResNet(cast(ResNet, model), self._dtype).freeze() if fuses else None

    def forward(self, images: Tensor) -> Tensor:
        if self._fused is not None:
            return self._fused(images)
        with torch.autocast(images.device.type, self._dtype):
            answer: Tensor = self.model(images)
        return answer

    @property
    def has_kernels(self) -> bool:
        """Whether kernels of ``fused`` stand in for the model."""
        return self._fused is not None

    def get_extra_state(self) -> str:
        """Answers depend on the precision as on weights: one stored evaluation has one of both."""
        return self.precision

    def set_extra_state(self, state: str) -> None:
        if state != self.precision:
            raise ValueError(f"this model is in {self.precision}, and the state in {state}")
