"""The kinds of model names, and ``load_model``, which understands all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from upright.checks import Model
from upright.factories import need_file
from upright.registry import Registry, UnknownNameError
from upright.sources.preprocess import Preprocess
from upright.sources.pretrained import Pretrained
from upright.train.weight_files import read_weights

__all__ = [
    "SOURCES",
    "load_model",
    "load_pretrained",
    "model_names",
    "model_source",
    "unknown_model",
]

Load = Callable[..., Model | Pretrained]
Loading = TypeVar("Loading", bound=Load)

SOURCES: Registry[Load] = Registry("model")
"""What loads models, by the kinds of their names."""

_WEIGHTS = (".bin", ".ckpt", ".pt", ".pth", ".safetensors", ".torchscript", ".ts")
_BUILD = (
    "write a Python function that builds it and loads them, and name that as FILE.py:FUNCTION; or "
    "save the model with torch.jit or torch.export"
)


def model_source(
    form: str, pattern: str, *, prefix: bool = False, fallback: bool = False, about: str = ""
) -> Callable[[Loading], Loading]:
    """Teach ``load_model`` a kind of name.

    Args:
        form: as people type it and as messages list it, such as ``timm:NAME``.
        pattern: matches the whole name; its groups go to the decorated function, with ``device``.
            That gives a model from images in [0, 1] to logits, or a ``Pretrained``.
        prefix: ask this source before all others, since what follows may be like another's name.
        fallback: ask this source only for names that no other source knows.
        about: what help says of it.
    """

    def register(load: Loading) -> Loading:
        SOURCES.register(form, pattern, about=about, precedence=prefix - fallback)(load)
        return load

    return register


def model_names() -> tuple[str, ...]:
    """Give the forms of names that ``load_model`` understands, such as ``FILE.onnx``."""
    return tuple(SOURCES)


def load_model(
    name: str | os.PathLike[str],
    *,
    device: torch.device | str = "cpu",
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
) -> Model:
    """Load a model from images in [0, 1], N x C x H x W, to logits, from wherever it comes.

    It is ready to be evaluated: on its device, and in evaluation mode. Only load files that you
    trust: Python files, ``.pt2`` files and those of ``torch.jit`` can run any code.

    Args:
        name: one of ``model_names()``, filled in, such as ``my_model.py:make``, ``net.onnx``,
            ``timm:resnet18`` or ``hf:FOLDER``; or the path of a file.
        device: where the model is to compute.
        preprocess: how it takes images and answers, where its source does not know; see
            ``Preprocess.of``, which reads it.
    """
    told = None if preprocess is None else Preprocess.of(preprocess)
    return load_pretrained(name, device=device).model(told, device=device)


def load_pretrained(
    name: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> Pretrained:
    """Load a network by name, with what its source says of it; see ``load_model``."""
    text = os.fspath(name)
    try:
        found = SOURCES.find(text)
    except UnknownNameError:
        raise unknown_model(text) from None
    loaded = found.value(*found.groups, device=torch.device(device))
    return loaded if isinstance(loaded, Pretrained) else Pretrained(loaded)


def unknown_model(name: str) -> ValueError:
    """Make the error for a name that is none of ``model_names()``: of weights alone, or of nothing.

    What a file holds is looked at, without running any code of it.
    """
    if Path(name).suffix not in _WEIGHTS:
        return SOURCES.unknown(name)
    try:
        need_file(name)
    except ValueError as error:
        return error
    try:
        read_weights(name)
    except ValueError as error:
        return ValueError(f"{error}, and {_BUILD}")
    return ValueError(f"{name} holds weights, which need a network: {_BUILD}")
