"""Parts of a Markdown file that a command writes, between two marks that a person placed:

<!-- reproduce: summary -->
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["fill_sections"]

_SECTION = re.compile(r"(<!-- reproduce: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill_sections(text: str, contents: Mapping[str, str]) -> str:
    """Put contents between the marks that name them; the rest of the text stays as it is."""
    names = [match.group(2) for match in _SECTION.finditer(text)]
    known = ", ".join(contents)
    if unknown := [name for name in names if name not in contents]:
        raise ValueError(f"nothing is called {unknown[0]!r} between marks; there is {known}")
    if not names or text.count("<!-- reproduce:") != len(names):
        raise ValueError(
            "it has no place for the result, or one that does not end: where it shall stand, put "
            f"the lines `<!-- reproduce: NAME -->` and `<!-- end -->`, with a NAME of {known}"
        )
    return _SECTION.sub(lambda match: _filled(match, contents), text)


def _filled(match: re.Match[str], contents: Mapping[str, str]) -> str:
    return f"{match.group(1)}\n{contents[match.group(2)].strip()}\n\n{match.group(4)}"
