"""Models made by Python code: ``FILE.py:FACTORY`` and ``package.module:FACTORY``.

The factory is called without arguments and returns the model. An ``nn.Module`` in its place is the
model itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from upright.checks import Model
from upright.sources.needs import need_file
from upright.sources.registry import model_source

__all__ = ["load_from_file", "load_from_module"]


@model_source("FILE.py:FACTORY", r"(.+\.py)(?::(\w*))?")
def load_from_file(file: str, factory: str | None, *, device: torch.device) -> Model:
    """Run a Python file and call a function of it."""
    path = need_file(file).resolve()
    _look_in(path.parent)
    # Not the file's own name: a file called random.py must not replace the module of that name.
    spec = importlib.util.spec_from_file_location(f"_model_in_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise _blame(file, error, str(path)) from error
    return _model(file, module, factory or "", device)


@model_source("package.module:FACTORY", r"([\w.]+):(\w*)", fallback=True)
def load_from_module(name: str, factory: str, *, device: torch.device) -> Model:
    """Import a module, also from the current folder, and call a function of it."""
    _look_in(Path.cwd())
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"no module is called {error.name!r}; install it, or change to the folder it is in"
            ) from error
        raise _blame(name, error, None) from error
    return _model(name, module, factory, device)


def _look_in(folder: Path) -> None:
    """Let models import what lies beside them, for good: they may do so when they are called."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _model(place: str, module: ModuleType, factory: str, device: torch.device) -> Model:
    if not hasattr(module, factory):
        candidates = ", ".join(f"{place}:{name}" for name in _candidates(module))
        wrong = f"{place} has no {factory!r}" if factory else f"{place} needs a factory"
        raise ValueError(f"{wrong}; choose from {candidates or 'what you add: it has none'}")
    name = f"{place}:{factory}"
    model = _call(name, getattr(module, factory), module.__file__)
    if not callable(model):
        raise ValueError(
            f"{name} gives a {type(model).__name__}, which is no model; give a module or a "
            "function from images to logits"
        )
    return model.to(device).eval() if isinstance(model, nn.Module) else model


def _call(name: str, factory: object, file: str | None) -> object:
    if isinstance(factory, nn.Module) or not callable(factory):
        return factory
    if required := _required(factory):
        raise ValueError(
            f"{name} asks for arguments ({', '.join(required)}), but is called without; write a "
            "function that takes none and returns the model"
        )
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise _blame(name, error, file) from error


def _required(factory: object) -> list[str]:
    assert callable(factory)
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some callables written in C do not tell
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in variable
    ]


def _candidates(module: ModuleType) -> list[str]:
    """The public names that the module itself defines and that could be called."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, nn.Module) or getattr(value, "__module__", "") == module.__name__)
        and callable(value)
    ]


def _blame(name: str, error: BaseException, file: str | None) -> ValueError:
    """Say in one line what the user's code raised and, if it is in their file, in which line."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
    ]
    where = f" (line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return ValueError(f"{name} raised {type(error).__name__}: {text}{where}")
