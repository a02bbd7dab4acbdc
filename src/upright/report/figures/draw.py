"""How figures look and how they are written: one style, as SVG and as PNG."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib.resources import as_file, files
from pathlib import Path
from typing import ParamSpec

import matplotlib.style
from matplotlib.figure import Figure

from upright.files import plain_name, write_whole

__all__ = ["BLUE", "EDGE", "GRID", "INK", "SERIES", "WRONG", "Drawing", "Look", "look", "styled"]

INK, EDGE, GRID = "#23272e", "#6d737b", "#d9dbde"
SERIES = ("#0b4f8a", "#c4541c", "#2f9e8f", "#7a5195", "#9a7d0a", "#8c9199", "#1f2328")
"""The colours of style.mplstyle; the page gives each of them a dark twin."""
BLUE, WRONG = SERIES[0], SERIES[1]
_MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    marker: str


def look(series: int) -> Look:
    """Tell series apart by colour or by marker, and up to 36 of them by both."""
    turn, place = divmod(series, len(SERIES))
    return Look(SERIES[place], _MARKERS[(place + turn) % len(_MARKERS)])


@dataclass(frozen=True)
class Drawing:
    """A figure with the words that go with it."""

    name: str
    """Of its files, and on the page; any text is made a plain one."""
    title: str
    caption: str
    figure: Figure

    def __post_init__(self) -> None:
        # It may hold the name of somebody's data set, which could lead out of the folder.
        object.__setattr__(self, "name", plain_name(self.name))

    @property
    def broad(self) -> bool:
        """Whether half a page is too narrow for it."""
        return bool(self.figure.get_size_inches()[0] > 8)

    @cached_property
    def svg(self) -> str:
        """The content of an SVG file; the same for the same data."""
        return self._render("svg").decode()

    def write(self, folder: Path) -> None:
        """Write ``NAME.svg`` and ``NAME.png``."""
        write_whole(folder / f"{self.name}.svg", self.svg.encode())
        write_whole(folder / f"{self.name}.png", self._render("png"))

    def _render(self, kind: str) -> bytes:
        buffer = io.BytesIO()
        with _style():
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            self.figure.savefig(buffer, format=kind, metadata=metadata)
        return buffer.getvalue()


_Options = ParamSpec("_Options")


def styled(
    draw: Callable[_Options, Drawing | None],
) -> Callable[_Options, Drawing | None]:
    """Let a function draw in the project's style. It gives None where there is nothing to draw."""

    @wraps(draw)
    def in_style(*args: _Options.args, **options: _Options.kwargs) -> Drawing | None:
        with _style():
            drawing = draw(*args, **options)
            if drawing is not None:
                # A layout is settled when it is made again: titles of several lines need the room.
                drawing.figure.draw_without_rendering()
            return drawing

    return in_style


@contextlib.contextmanager
def _style() -> Iterator[None]:
    style = files("upright.report.figures").joinpath("style.mplstyle")
    with as_file(style) as path, matplotlib.style.context(path):
        yield
