"""What must be there before a model can be loaded: the library that reads it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["need_library"]


def need_library(library: str, *, extra: str, wanted: str) -> Any:
    """Import a library that comes with an extra of this package only."""
    try:
        return import_module(library)
    # A broken installation may raise anything: timm without a fitting torchvision, RuntimeError.
    except Exception as error:
        raise ValueError(
            f"{wanted} needs {library}, which cannot be imported ({error}): install the extra "
            f"{extra!r} of upright, or {library} itself"
        ) from error
