"""Libraries that a test needs and that need not be there, or not for this build of PyTorch."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import pytest
import torch


def need(library: str) -> Any:
    """Import a library, or skip the test where it is missing, or is there but broken."""
    try:
        if library in ("timm", "torchvision"):
            _mend_torchvision()
        return importlib.import_module(library)
    except Exception as error:
        pytest.skip(f"{library} cannot be imported: {error}")


@cache
def _mend_torchvision() -> object:
    """Import torchvision, also one that was built for another PyTorch, as for CUDA beside a CPU's.

    That finds none of its own operators, and fails for want of the schemas of two of them alone,
    which no classifier uses.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        schemas = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            schemas.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module("torchvision"), schemas
