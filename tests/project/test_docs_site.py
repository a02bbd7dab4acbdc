"""The site is built without a warning, is complete, and asks nobody else for anything."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

import upright

ROOT = Path(__file__).parents[2]
PACKAGE = Path(upright.__file__).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def modules() -> Iterator[str]:
    """The public modules that can be imported here."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        lacks = parts[-1] == "huggingface" and find_spec("transformers") is None
        if not lacks and parts[-1] != "__main__" and not parts[-1].endswith("_kernels"):
            yield ".".join(parts).removesuffix(".__init__")


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(page.read_text() for page in site.glob("reference/*.html"))
    exported = {
        (name, public): id(getattr(importlib.import_module(name), public))
        for name in modules()
        for public in importlib.import_module(name).__all__
        if not public.startswith("__")
    }
    shown = {
        (public, kept)
        for (name, public), kept in exported.items()
        if f'id="{name}.{public}"' in pages
    }
    # A name that several modules export is shown once.
    missing = [path for path, kept in exported.items() if (path[1], kept) not in shown]
    assert not missing
    front = (site / "reference" / "index.html").read_text()
    names = [name for name in upright.__all__ if not name.startswith("__")]
    assert all(f"<code>{name}</code>" in front for name in names)


def test_every_public_class_and_function_says_what_it_is_for() -> None:
    for name in modules():
        module = importlib.import_module(name)
        assert module.__doc__, f"{name} has no docstring"
        for public in module.__all__:
            kept = getattr(module, public)
            if callable(kept) and getattr(kept, "__module__", "") == name:
                assert kept.__doc__, f"{name}.{public} has no docstring"


def test_examples_of_docstrings_are_shown_as_code(site: Path) -> None:
    page = (site / "reference" / "warp.html").read_text()
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page
    pages = site.glob("reference/*.html")
    assert not [page for page in pages if "<blockquote>" in page.read_text()]


class Requests(HTMLParser):
    """Notes what a browser fetches to show a page, which links to follow are not."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            fetched = name in ("src", "srcset", "data", "poster") or (name, tag) == ("href", "link")
            if fetched and value:
                self.found.append(value)


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        parser = Requests()
        parser.feed(page.read_text())
        assert parser.found
        for address in parser.found:
            assert not re.match(r"(https?:)?//", address), f"{page.name} fetches {address}"
            local = (page.parent / address.partition("?")[0].partition("#")[0]).resolve()
            # The page for errors is shown at any address, so that its links begin at the root.
            assert address.startswith(("data:", "/")) or local.is_file(), f"{page.name}: {address}"


def test_styles_fetch_nothing_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        asked = re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", style.read_text())
        assert not [address for address in asked if re.match(r"(https?:)?//", address)], style


def test_scripts_of_others_stay_away(site: Path) -> None:
    """The theme fetches these by itself where a page gives it a reason to."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert 'class="mermaid"' not in text, f"{page.name}: a diagram, drawn by a CDN's code"
        assert 'data-md-component="source"' not in text, f"{page.name}: asks GitHub for stars"
