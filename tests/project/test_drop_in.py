"""The examples of docs/add, put into the package as their pages say: found, and harmless."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = {
    "attacks": ("corners", "hill_climb"),
    "data": ("arrows",),
    "families": ("squeeze", "vignette"),
    "models": ("blurnet",),
    "sources": ("linear",),
}
USED = """
from upright.attacks import parse_attack
from upright.data import data_names
from upright.models import is_network
from upright.sources import model_names
from upright.space import Space
print(parse_attack("corners"), parse_attack("hill-5"), Space.of("squeeze vignette"))
print("arrows" in data_names(), is_network("blurnet-8"), any("linear" in n for n in model_names()))
"""


def test_each_example_is_found_where_its_page_puts_it(tmp_path: Path) -> None:
    package = tmp_path / "upright"
    ignored = shutil.ignore_patterns("__pycache__", "entries")
    shutil.copytree(ROOT / "src" / "upright", package, ignore=ignored)
    for room, names in PLACES.items():
        for name in names:
            assert not (package / room / f"{name}.py").exists()
            shutil.copy(ROOT / "examples" / "extend" / f"{name}.py", package / room)
    found = subprocess.run(
        [sys.executable, "-c", USED],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    first, second = found.stdout.splitlines()
    assert first.startswith("corners hill-5 squeeze")
    assert second == "True True True"
