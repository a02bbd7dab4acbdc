"""Get the next item ready beside the work on the one before it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from upright.callers import warning_here
from upright.modes import climbing

__all__ = ["one_ahead"]

T = TypeVar("T")


def one_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Give items one after another, the next of which a thread makes meanwhile.

    An error is that of the item that is asked for. Who stops asking must close this, and waits for
    one item at the most. Left to the garbage collector it would be closed in any thread, such as
    one that a pool is just starting, and wait for that pool's lock for ever.
    """
    make = warning_here(_next)
    with ThreadPoolExecutor(1, thread_name_prefix="upright-ahead") as thread:
        coming = thread.submit(make, items)
        while item := coming.result():
            coming = thread.submit(make, items)
            yield item[0]


def _next(items: Iterator[T]) -> tuple[T] | None:
    """Make an item, in the modes of an evaluation, which each thread has for itself."""
    with climbing():
        for item in items:
            return (item,)
        return None
