"""Models made by Python code: ``FILE.py:FACTORY`` and ``package.module:FACTORY``.

The factory is called without arguments and returns the model. An ``nn.Module`` in its place is the
model itself.
"""

from __future__ import annotations

import torch
from torch import nn

from upright.checks import Model
from upright.factories import FILE, MODULE, Factory, from_file, from_module
from upright.sources.registry import model_names, model_source

__all__ = ["load_from_file", "load_from_module"]


@model_source("FILE.py:FACTORY", FILE.pattern, about="called without arguments")
def load_from_file(file: str, factory: str | None, *, device: torch.device) -> Model:
    """Run a Python file and call a function of it."""
    return _model(from_file(file, factory or ""), device)


@model_source(
    "package.module:FACTORY", MODULE.pattern, fallback=True, about="called without arguments"
)
def load_from_module(name: str, factory: str, *, device: torch.device) -> Model:
    """Import a module, also from the current folder, and call a function of it."""
    return _model(from_module(name, factory, kinds=model_names()), device)


def _model(factory: Factory, device: torch.device) -> Model:
    model = factory.make()
    if not callable(model):
        raise ValueError(
            f"{factory.name} gives a {type(model).__name__}, which is no model; give a module or a "
            "function from images to logits"
        )
    return model.to(device).eval() if isinstance(model, nn.Module) else model
