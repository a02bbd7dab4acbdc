"""What a model raises when it is asked, in words: whose it is, what it raised, and where.

For models by name. A model that a user hands over in Python raises what it raises: they have its
traceback, which says more.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from upright.factories import blame, in_words, is_users_code
from upright.logits import ask
from upright.sources.sized import not_taken

__all__ = ["blaming"]


@contextmanager
def blaming(model: str, first: Tensor | None = None) -> Iterator[None]:
    """Say which model raised an error, in the words that its factory's errors have.

    Errors of this package stay as they are: they say what to do.

    Args:
        model: its name.
        first: the one image that it is asked about before all others, as the network takes it: one
            that it cannot answer about it does not take.
    """
    try:
        yield
    except BrokenPipeError:  # who reads what it prints has left: no fault of its own
        raise
    except (Exception, SystemExit) as error:
        if not _is_of_model(error):
            raise
        if first is None:
            raise blame(model, error) from error
        why = f"asked about one, it raised {in_words(model, error)}"
        raise ValueError(not_taken(first, why, model=model)) from error


def _is_of_model(error: BaseException) -> bool:
    """Whether code of others raised it below our question, and no check of ours."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    asked = [place for place, frame in enumerate(frames) if frame.f_code is ask.__code__]
    below = frames[asked[0] + 1 :] if asked else []
    if any(is_users_code(frame.f_code.co_filename) for frame in below):
        return True
    return bool(below) and not below[-1].f_globals.get("__name__", "").startswith("upright.")
