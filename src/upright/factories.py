"""Python code by name: ``FILE.py:FACTORY`` and ``package.module:FACTORY``.

What is found under the name runs with all that the user may do: a name must come from them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from torch import nn

from upright.registry import is_ours, source_file

__all__ = [
    "FILE",
    "MODULE",
    "Factory",
    "Offer",
    "blame",
    "code_digest",
    "digest_of_code",
    "find_factory",
    "from_file",
    "from_module",
    "in_words",
    "is_users_code",
    "need_file",
    "need_library",
    "run_file",
]

FILE = re.compile(r"(.+\.py)(?::(\w*))?")
MODULE = re.compile(r"([\w.]+):(\w*)")
_HAS_PREFIX = re.compile(r"[\w-]+:")

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NOT_OWN = (Path(os.__file__).parent, Path(__file__).parent)


class Offer(NamedTuple):
    """A value for a factory, by the names that its parameter for it may have."""

    value: object
    names: tuple[str, ...]
    in_kwargs: str | None = None
    """The name that goes into its ``**kwargs``, where it has these and no parameter for it."""

    def to(self, factory: object) -> dict[str, object]:
        """Give the arguments of a factory that this offer makes."""
        names = [name for name in self.names if name in _parameters(factory)]
        if not names and self.in_kwargs and _takes_any(factory):
            names = [self.in_kwargs]
        return dict.fromkeys(names, self.value)


@dataclass(frozen=True)
class Factory:
    """What was found under a name: a function or class to call, or an object that is there."""

    name: str
    value: object
    file: str | None
    """That defines it; None where it is not Python code."""

    def make(self, *offers: Offer) -> object:
        """Call it with what it has parameters for.

        An ``nn.Module``, or what cannot be called, is given as it is.
        """
        if isinstance(self.value, nn.Module) or not callable(self.value):
            return self.value
        given = {name: value for offer in offers for name, value in offer.to(self.value).items()}
        needed = [name for name, needed in _parameters(self.value).items() if needed]
        if missing := [name for name in needed if name not in given]:
            offered = ", ".join(name for offer in offers for name in offer.names)
            raise ValueError(
                f"{self.name} asks for arguments ({', '.join(missing)}), but is offered "
                f"{offered or 'none'}; write a function that takes no others and returns the model"
            )
        try:
            return self.value(**given)
        except (Exception, SystemExit) as error:
            raise blame(self.name, error, self.file) from error


def find_factory(name: str, *, kinds: Iterable[str] = ()) -> Factory | None:
    """Find what a name stands for; None for a name of another kind. See ``from_module``."""
    if match := FILE.fullmatch(name):
        return from_file(match[1], match[2] or "")
    if match := MODULE.fullmatch(name):
        return from_module(match[1], match[2], kinds=kinds)
    return None


def code_digest(name: str, *, kinds: Iterable[str] = ()) -> str:
    """SHA-256 of the file that a name means, not of what that imports; empty for other names.

    A file that is named is not run for it. Of a module it is the file that defines what is named,
    which the module may only pass on.
    """
    if match := FILE.fullmatch(name):
        return _digest(need_file(match[1]))
    factory = find_factory(name, kinds=kinds)
    return "" if factory is None or factory.file is None else _digest(Path(factory.file))


def digest_of_code(*objects: object) -> str:
    """SHA-256 of the code of the user's own that some objects are made of; empty where none is.

    That is the files that define their classes, what these inherit from, and what they hold in
    fields: not what the files import. Code that was typed in has no file, and is its own text.
    """
    seen = set[int]()
    code = {_text_of(each) for held in objects for each in _own_code(held, seen)}
    return hashlib.sha256("\0".join(sorted(code)).encode()).hexdigest() if code else ""


def _own_code(held: object, seen: set[int]) -> Iterator[type | FunctionType]:
    """Classes and functions that are not of this package, Python's or installed.

    ``seen`` are the places of what was looked at: an object may hold itself.
    """
    if id(held) in seen:
        return
    seen.add(id(held))
    parts: Iterable[object] = ()
    match held:
        case type():
            yield from (kind for kind in held.__mro__ if _is_own(kind))
        case FunctionType():
            yield from (each for each in [inspect.unwrap(held)] if _is_own(each))
        case MethodType():
            parts = (held.__func__, held.__self__)
        case partial():
            parts = (held.func, held.args, held.keywords)
        case Mapping():
            parts = held.values()
        case list() | tuple():
            parts = held
        case _:
            parts = [type(held)]
            if is_dataclass(held):
                parts += [getattr(held, field.name, None) for field in fields(held)]
    for part in parts:
        yield from _own_code(part, seen)


@cache  # recipes are read by the thousand, and this looks at files
def _is_own(code: type | FunctionType) -> bool:
    if is_ours(code):
        return False
    # What extends this package is never somebody else's, wherever it is installed.
    extends = isinstance(code, type) and any(map(is_ours, code.__mro__))
    return extends or code.__module__ == "__main__" or is_users_code(str(source_file(code) or ""))


def _text_of(code: type | FunctionType) -> str:
    """What its file holds, as a digest; or its text, or what it is called."""
    if file := source_file(code):
        return _digest(file)
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return code.__qualname__


def from_file(file: str, factory: str) -> Factory:
    """Run a Python file, and look into it."""
    return _factory(file, run_file(file), factory)


def run_file(file: str) -> ModuleType:
    """Run a Python file; what it raises is said in one line."""
    path = need_file(file).resolve()
    _look_in(path.parent)
    # Not the file's own name: a file called random.py must not replace the module of that name, nor
    # one that of another folder, where Python looks up which file a class is from.
    place = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"_model_in_{path.stem}_{place}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise blame(file, error, str(path)) from error
    return module


def from_module(name: str, factory: str, *, kinds: Iterable[str] = ()) -> Factory:
    """Import a module, also from the current folder, and look into it.

    ``kinds`` are the other forms of names that have a colon, to be told where there is no module.
    """
    _look_in(Path.cwd())
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"no module is called {error.name!r}{_other_kinds(name, kinds)}; install it, or "
                "change to the folder it is in"
            ) from error
        raise blame(name, error) from error
    return _factory(name, module, factory)


def _other_kinds(name: str, kinds: Iterable[str]) -> str:
    """Who forgot a letter of ``timm:NAME`` means no module; one with a dot is meant."""
    known = [] if "." in name else [form for form in kinds if _HAS_PREFIX.match(form)]
    return f", and no other kind of name begins so (there are {', '.join(known)})" if known else ""


def need_file(name: str) -> Path:
    """Give the path of a file that exists."""
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"{name}: no such file; give the path of one")
    return path


def need_library(library: str, *, extra: str, wanted: str) -> Any:
    """Import a library that comes with an extra of this package only."""
    try:
        return importlib.import_module(library)
    # A broken installation may raise anything: timm without a fitting torchvision, RuntimeError.
    except Exception as error:
        advice = f"install the extra {extra!r} of upright, or {library} itself"
        if not isinstance(error, ImportError) and "torchvision" in str(error):
            advice = (
                "the torch and the torchvision that are installed are of different builds; install "
                "both together, from one index"
            )
        raise ValueError(
            f"{wanted} needs {library}, which cannot be imported ({error}): {advice}"
        ) from error


def _look_in(folder: Path) -> None:
    """Let models import what lies beside them, for good: they may do so when they are called."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _factory(place: str, module: ModuleType, factory: str) -> Factory:
    if not hasattr(module, factory):
        candidates = ", ".join(f"{place}:{name}" for name in _candidates(module))
        wrong = f"{place} has no {factory!r}" if factory else f"{place} needs a factory"
        raise ValueError(f"{wrong}; choose from {candidates or 'what you add: it has none'}")
    value = getattr(module, factory)
    return Factory(f"{place}:{factory}", value, _defined_in(value) or module.__file__)


def _defined_in(value: object) -> str | None:
    """The file that defines a function or a class; None where that cannot be told."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return None
    try:
        return inspect.getsourcefile(inspect.unwrap(value))
    except (OSError, TypeError):  # a class without a file
        return None


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _parameters(factory: object) -> dict[str, bool]:
    """The names of a callable's parameters, and whether it cannot be called without them."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        each.name: each.default is each.empty
        for each in _signature(factory)
        if each.kind not in variable
    }


def _takes_any(factory: object) -> bool:
    """Whether a callable has ``**kwargs``."""
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in _signature(factory))


def _signature(factory: object) -> list[inspect.Parameter]:
    assert callable(factory)
    try:
        return [*inspect.signature(factory).parameters.values()]
    except (TypeError, ValueError):  # some callables written in C do not tell
        return []


def _candidates(module: ModuleType) -> list[str]:
    """The public names that the module itself defines and that could be called."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, nn.Module) or getattr(value, "__module__", "") == module.__name__)
        and callable(value)
    ]


def blame(name: str, error: BaseException, file: str | None = None) -> ValueError:
    """Make the error that says in one line what the user's code of this name raised."""
    return ValueError(f"{name} raised {in_words(name, error, file)}")


def in_words(name: str, error: BaseException, file: str | None = None) -> str:
    """Give an error's kind and text, and the last line of the user's code that it passed.

    That is code in ``file``, wherever it lies, and all that is not installed.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file or is_users_code(frame.filename)
    ]
    where = f" ({_place(name, frames[-1])})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def is_users_code(file: str) -> bool:
    """Whether a file is code of the user: not Python's, not installed, and not of this package."""
    path = Path(file)
    if not _INSTALLED.isdisjoint(path.parts) or not path.is_file():  # as "<string>"
        return False
    return not any(path.is_relative_to(folder) for folder in _NOT_OWN)


def _place(name: str, frame: traceback.FrameSummary) -> str:
    """The line, and its file where the name does not say it."""
    file, named = Path(frame.filename).name, FILE.fullmatch(name)
    said = named is not None and Path(named[1]).name == file
    return f"line {frame.lineno}" if said else f"{file}, line {frame.lineno}"
