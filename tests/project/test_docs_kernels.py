"""The kernels' page names what there is: files, functions, classes and constants."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernels.md").read_text()
FUSED = ROOT / "src" / "upright" / "models" / "fused"
TESTS = ROOT / "tests"
FOLDERS = (ROOT, ROOT / "src" / "upright", FUSED.parent, FUSED, TESTS, TESTS / "models")
NAMED = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S)))
FILES = {name for name in NAMED if re.fullmatch(r"[\w*/]+(\.(py|cu|cuh|h)|/)", name)}


def is_there(file: str) -> bool:
    return any(list(folder.glob(file)) for folder in FOLDERS)


def test_files_exist() -> None:
    shown = FILES - {"PROGRAM.cu", "src/upright/", "models/fused/"}
    assert len(shown) > 20
    assert [file for file in sorted(shown) if not is_there(file)] == []


def test_every_file_of_the_kernels_is_on_the_page() -> None:
    for file in chain(FUSED.glob("*.cu"), FUSED.glob("*.cuh")):
        assert f"`{file.name}`" in PAGE, file.name


def test_names_exist() -> None:
    names = {name for name in NAMED - FILES if re.fullmatch(r"[A-Za-z_]\w+(\.\w+)?", name)}
    assert len(names) > 30
    files = {*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*")} - {Path(__file__)}
    sources = (file for file in files if file.suffix in (".py", ".cu", ".cuh", ".h"))
    known = set(re.findall(r"\w+", "\n".join(file.read_text() for file in sources)))
    words = {word for name in names for word in name.split(".")}
    assert words - known == {"PROGRAM", "PROGRAM_backward"}  # to be written
