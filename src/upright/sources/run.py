"""This project's own runs: a directory that ``upright train`` wrote."""

from __future__ import annotations

from pathlib import Path

import torch

from upright.checks import Model
from upright.sources.registry import model_source, unknown_model
from upright.train import RunDirectory, load_network

__all__ = ["load_run"]


@model_source(
    "RUN-DIRECTORY", r"([^:]+)", fallback=True, about="the folder of a run of `upright train`"
)
def load_run(name: str, *, device: torch.device) -> Model:
    """Load the newest weights of a run."""
    path = Path(name)
    if not path.is_dir():
        raise unknown_model(name)
    recipe = RunDirectory.open(path).recipe
    if recipe.is_locnet:
        raise ValueError(
            f"{name} is a LocNet, which finds poses and no classes; name it together with a "
            f"classifier, as in stn-plus:{name},CLASSIFIER"
        )
    return load_network(path).to(device)
