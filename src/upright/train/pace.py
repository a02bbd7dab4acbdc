"""How long a run will take, told from its first seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import torch

__all__ = ["LongRun", "Pace", "in_words"]

_WATCHED_SECONDS = 5.0
_LONG_SECONDS = 3600.0


class LongRun(UserWarning):
    """A run that will take hours, because it has no GPU."""


class Pace:
    """Watches the first of so many steps on a CPU and says, once, if all will take hours."""

    def __init__(
        self,
        steps: int,
        device: torch.device,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._steps, self._clock, self._watches = steps, clock, device.type == "cpu"
        self._passed, self._began = 0, 0.0

    def passed_one(self) -> None:
        """Take note that another step is done, of each of the runs that train side by side."""
        if not self._watches:
            return
        now = self._clock()
        if self._passed == 0:
            self._began = now  # from here on: the very first step may take longer
        elif now - self._began >= _WATCHED_SECONDS:
            self._watches = False
            self._tell(self._steps * (now - self._began) / self._passed)
        self._passed += 1

    def _tell(self, seconds: float) -> None:
        if seconds >= _LONG_SECONDS:
            warnings.warn(
                f"{self._steps:,} steps will take about {in_words(seconds)} on this "
                "processor; stop with Ctrl-C and give fewer (--steps), a smaller network (--model) "
                "or a GPU (--device cuda), or let it run",
                LongRun,
                stacklevel=2,
            )


def in_words(seconds: float) -> str:
    """Write a time as people would say it.

    >>> [in_words(each) for each in (45, 600, 11_400, 300_000)]
    ['45 s', '10 min', '3 h 10 min', '3.5 days']
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{seconds / 86_400:.1f} days"
