"""The soak at a small size: cycles of training and evaluation in which nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="limits and signals are those of Linux")
def test_nothing_is_lost_in_a_few_cycles(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, ROOT / "benchmarks" / "soak.py", "--minutes", "0.33", "--seed", "2"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, "--json", file], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(file.read_text())
    assert figures["cycles"] >= 1
    assert figures["results lost"] == {}
