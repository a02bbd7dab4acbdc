"""``upright families``: what images can be changed by."""

from __future__ import annotations

from collections.abc import Iterator

from upright.families import FAMILIES, Axis, Family
from upright.terminal import plain_console, plain_text

__all__ = ["list_families"]


def list_families() -> None:
    """List the families of transformations, of which --space is made.

    Each with its usual limits, which --space has where it gives none, and its axes.
    """
    console = plain_console()
    for kind in FAMILIES.values():
        for line in _lines(kind):
            console.print(plain_text(line), soft_wrap=True)
    console.print(
        "\nOne after another they make a space, the one on the right first: "
        '--space "shift(10%) rotate(-5..20) zoom(0.9..1.1)".\n'
        'One of your own: --space "FILE.py:NAME(LIMIT)".',
        soft_wrap=True,
    )


def _lines(kind: type[Family]) -> Iterator[str]:
    """A family: what to copy, what it does, and its axes."""
    yield str(kind())
    if told := (kind.__doc__ or "").strip().partition("\n")[0]:
        yield f"    {told}"
    yield f"    axes: {', '.join(map(_axis, kind.axes))}"


def _axis(axis: Axis) -> str:
    unit = {"factor": "a factor", "": "a plain number", "px": "px"}.get(axis.unit, axis.unit)
    either = f"{unit} or %" if axis.side is not None else unit
    return f"{axis.name} ({either})"
