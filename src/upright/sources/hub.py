"""The hub of Hugging Face, from which several libraries have their weights."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

__all__ = ["quiet_hub"]


@contextlib.contextmanager
def quiet_hub() -> Iterator[None]:
    """Let it not tell each time that it tries again: in the end it raises."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
