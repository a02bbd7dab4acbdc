"""What is shown in a terminal: text from files and names can neither steer it nor become markup.

Paths, cards and records come from anywhere. What they say is shown character by character; what is
no printable character is written out, as in ``\\x1b``.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

__all__ = ["plain_console", "plain_text", "printable", "tell"]


def printable(text: str, *, keep: str = "") -> str:
    """Write out what could steer a terminal, end a line, or cannot be printed at all.

    >>> printable("a name\\nof two lines")
    'a name\\\\nof two lines'
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def plain_text(text: object, style: str = "") -> Text:
    """Text for a table or a line of ``rich``, as wide as it will be shown."""
    return Text(printable(str(text)), style)


def tell(text: str) -> None:
    """Write a line to stdout."""
    print(printable(text))


def plain_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Make a console without markup, on which no text can do more than be read."""
    return _PlainConsole(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)


class _PlainConsole(Console):
    """The last gate: whatever was drawn, its text is printable; colours come after it."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = printable(segment.text, keep="\n")
            plain = segment.control is not None or text == segment.text
            yield segment if plain else Segment(text, segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to the caller, who may have other things to do than to print."""
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
