"""The kinds of model names, and ``load_model``, which understands all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from upright.checks import Model

__all__ = ["load_model", "model_names", "model_source", "unknown_model"]

Load = Callable[..., Model]


@dataclass(frozen=True)
class _Source:
    form: str
    pattern: re.Pattern[str]
    load: Load
    rank: int
    """Sources of lower rank are asked first."""


_SOURCES: list[_Source] = []

_WEIGHTS = (".bin", ".ckpt", ".pt", ".pth", ".safetensors")


def model_source(
    form: str, pattern: str, *, prefix: bool = False, fallback: bool = False
) -> Callable[[Load], Load]:
    """Teach ``load_model`` a kind of name.

    Args:
        form: as people type it and as messages list it, such as ``timm:NAME``.
        pattern: matches the whole name; its groups go to the decorated function, with ``device``.
        prefix: ask this source before all others, since what follows is the name of another model.
        fallback: ask this source only for names that no other source knows.
    """

    def register(load: Load) -> Load:
        _SOURCES.append(_Source(form, re.compile(pattern), load, fallback - prefix))
        return load

    return register


def model_names() -> tuple[str, ...]:
    """Give the forms of names that ``load_model`` understands, such as ``FILE.onnx``."""
    return tuple(sorted(source.form for source in _SOURCES))


def load_model(name: str, *, device: torch.device | str = "cpu") -> Model:
    """Load a model, ready to be evaluated: on its device, and in evaluation mode.

    Only load files that you trust: Python files, ``.pt2`` files and those of ``torch.jit`` can run
    any code.

    Args:
        name: one of ``model_names()``, filled in, such as ``my_model.py:make`` or ``net.onnx``.
        device: where the model is to compute.
    """
    for source in sorted(_SOURCES, key=lambda source: source.rank):
        if match := source.pattern.fullmatch(name):
            return source.load(*match.groups(), device=torch.device(device))
    raise unknown_model(name)


def unknown_model(name: str) -> ValueError:
    """Make the error for a name that is none of ``model_names()``."""
    if Path(name).suffix in _WEIGHTS:
        return ValueError(
            f"{name} holds weights, which need a network: write a Python function that builds it "
            "and loads them, and name that as FILE.py:FUNCTION; or save the model with torch.jit "
            "or torch.export"
        )
    return ValueError(f"no model is called {name!r}; write {', '.join(model_names())}")
