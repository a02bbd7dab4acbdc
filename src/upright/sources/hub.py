"""The hub of Hugging Face, from which several libraries have their weights."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from upright.callers import warn_caller, warning_here

__all__ = ["SlowHub", "quiet_hub"]

_PATIENCE_SECONDS = 5.0


class SlowHub(UserWarning):
    """What is asked of the hub takes a while: it may be large, or nobody may answer."""


@contextlib.contextmanager
def quiet_hub(name: str) -> Iterator[None]:
    """Let it not tell each time that it tries again; after a while, once, that one waits for it."""
    where = name if Path(name).exists() else f"{name}, no folder here, from the hub of Hugging Face"
    text = f"still waiting for {where}; Ctrl-C gives up"
    waiting = threading.Timer(_PATIENCE_SECONDS, warning_here(warn_caller), (text, SlowHub))
    waiting.daemon = True
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()
        hub.setLevel(level)
