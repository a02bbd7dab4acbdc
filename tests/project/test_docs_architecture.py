"""The architecture page: every room that it names exists, and every room is on it."""

from __future__ import annotations

import re
from pathlib import Path

import upright

PACKAGE = Path(upright.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
ROOMS = PAGE.partition("## Rooms")[2].partition("`evaluation`, `objective` and `attacks` never")[0]
BESIDE = {"_version", "__init__", "__main__"}


def named(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)/?`", cell))


def rows() -> list[list[str]]:
    lines = [line for line in ROOMS.splitlines() if line.startswith("| `")]
    return [line.strip("| ").split(" | ") for line in lines]


def test_every_room_is_on_the_page_and_every_row_is_a_room():
    there = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.parent.name for path in PACKAGE.glob("*/__init__.py")
    }
    listed = {name for first, *_ in rows() for name in named(first)}
    assert listed == there - BESIDE


def test_files_that_the_page_names_are_there():
    files = set(re.findall(r"`(\w+/\w+)(?:\.py)?`", PAGE.partition("## Dependencies")[0]))
    assert len(files) > 30
    for name in files:
        room, _, file = name.partition("/")
        exists = (PACKAGE / room / f"{file}.py").exists() or (PACKAGE / room / file).is_dir()
        assert exists, name
