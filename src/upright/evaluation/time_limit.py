"""A limit of time for an evaluation: whether more is begun, as far as what was done so far tells.

What is begun is ended. If work in progress were dropped instead, images that take long, those that
nothing fools, would be dropped more often than others, and the model would look too weak. Whether
to begin depends on the past alone, so that the images that are done stay a random part.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["TimeLimit"]


@dataclass
class TimeLimit:
    """So many seconds from now on; None for no limit."""

    seconds: float | None = None
    _began: float = field(default_factory=lambda: time.monotonic(), init=False)
    _worked: float = field(default=0.0, init=False)
    _done: int = field(default=0, init=False)

    @staticmethod
    def of_minutes(minutes: float | None) -> TimeLimit:
        if minutes is not None and not 0 < minutes < math.inf:
            raise ValueError(
                f"minutes must be a number above 0, but are {minutes}; without any, all is measured"
            )
        return TimeLimit(None if minutes is None else 60 * minutes)

    @property
    def allows_more(self) -> bool:
        """Whether one more piece of work fits, if it takes as long as those before in the mean.

        The first is always done: it tells how long one takes.
        """
        if self.seconds is None or not self._done:
            return True
        left = self.seconds - (time.monotonic() - self._began)
        return left >= self._worked / self._done

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Count one piece of work."""
        began = time.monotonic()
        yield
        self._worked += time.monotonic() - began
        self._done += 1
