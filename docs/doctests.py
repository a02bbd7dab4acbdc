"""Examples in docstrings are shown as code: in Markdown alone, ``>>>`` would be a quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Doctests", "fenced"]

_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*?(?=\n *\n|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Puts each example into a fence of its own before the docstring is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of whatever has been found."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Fence every paragraph that begins with a prompt."""
    return _EXAMPLE.sub(lambda found: "{1}```pycon\n{0}\n{1}```".format(*found.group(0, 1)), text)
