"""Libraries that a test needs and that need not be there, or not for this build of PyTorch."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Any

import pytest
import torch


def need(library: str) -> Any:
    """Import a library, or skip the test where it is missing, or is there but broken."""
    try:
        return importlib.import_module(library)
    except Exception as error:
        pytest.skip(f"{library} cannot be imported: {error}")


def let_torchvision_be_imported() -> torch.library.Library | None:
    """Let a torchvision that was built for CUDA be imported beside a PyTorch for CPUs.

    Without its own operators it fails for want of the schemas of two of them alone, which no
    classifier uses. Lightning, torchmetrics and transformers import it wherever it is installed.
    What is given back has to be kept: with it the schemas go.
    """
    if torch.version.cuda is not None or importlib.util.find_spec("torchvision") is None:
        return None
    if "+cpu" in importlib.metadata.version("torchvision"):
        return None
    schemas = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        schemas.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return schemas
