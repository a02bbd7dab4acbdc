"""This project's own runs: a directory that ``upright train`` wrote."""

from __future__ import annotations

from pathlib import Path

import torch

from upright.checks import Model
from upright.sources.registry import model_source, unknown_model
from upright.train import load_network

__all__ = ["load_run"]


@model_source("RUN-DIRECTORY", r"([^:]+)", fallback=True)
def load_run(name: str, *, device: torch.device) -> Model:
    """Load the newest weights of a run."""
    path = Path(name)
    if not path.is_dir():
        raise unknown_model(name)
    return load_network(path).to(device)
