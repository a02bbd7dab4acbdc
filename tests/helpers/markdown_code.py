"""The code in Markdown pages, and a way to run it.

A page is one program: its ``python`` blocks run in order and share their names. A block that stands
after ``<!-- not run: REASON -->`` is compiled only. A ``text`` block with ``title="prints"`` holds
what the block before it prints; three dots stand for anything. ``--8<-- "FILE"`` includes a file.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "results" / "README.md"])

_FENCE = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\n+)?"
    r"^```(?: \{\.)?(?P<language>\w*)(?P<options>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_INCLUDE = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    options: str
    code: str
    runs: bool

    @property
    def is_output(self) -> bool:
        return self.language == "text" and 'title="prints"' in self.options


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, files included."""
    text = page.read_text()
    return [
        Block(
            page,
            text[: match.start("code")].count("\n"),
            match["language"],
            match["options"],
            _INCLUDE.sub(lambda include: (ROOT / include[1]).read_text(), match["code"]),
            match["skip"] is None,
        )
        for match in _FENCE.finditer(text)
    ]


def run_page(page: Path, given: Mapping[str, object] | None = None) -> None:
    """Run a page's code, and compare what it prints with what the page says.

    ``given`` are names that the page takes as the reader's own.
    """
    with _program() as names:
        names.update(given or {})
        printed: str | None = None
        for block in blocks(page):
            if block.language == "python":
                # Line numbers of an error are then those of the page, which is no file of code.
                code = compile("\n" * block.line + block.code, f"<{page}>", "exec")
                printed = _run(code, names) if block.runs else None
            elif block.is_output:
                assert printed is not None, f"{page}:{block.line}: nothing was run before this"
                assert same_output(block.code, printed), f"{page}:{block.line}: prints\n{printed}"


def run_code(code: str) -> str:
    """Run code as a program of its own; give what it prints."""
    with _program() as names:
        return _run(compile(code, "code of a page", "exec"), names)


def same_output(said: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(said, printed, doctest.ELLIPSIS)


def _run(code: object, names: dict[str, object]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, names)  # type: ignore[arg-type]
    return output.getvalue()


@contextlib.contextmanager
def _program() -> Iterator[dict[str, object]]:
    """The names of a module, in which dataclasses can be defined."""
    module = ModuleType("page_of_the_docs")
    sys.modules[module.__name__] = module
    try:
        yield vars(module)
    finally:
        del sys.modules[module.__name__]


def commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks that call ``upright``."""
    shell = "".join(block.code for block in blocks(page) if block.language == "sh")
    indented = re.findall(r"^    (upright .*)$", page.read_text(), re.MULTILINE)
    lines = shell.replace("\\\n", " ").splitlines() + indented
    return [line.partition(" #")[0].strip() for line in lines if line.startswith("upright ")]
