"""The GPU's kernels compute what the network does, in Triton's interpreter: no GPU is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs triton, for Linux alone"
)


@needs_triton
@pytest.mark.parametrize("size", [(8, 8), (9, 7)])
def test_kernels_give_logits_gradients_and_statistics_of_the_network(size: tuple[int, int]) -> None:
    program = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *map(str, size)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 1e-5 < found.pop("rounding")["float16"] < 1e-3
    for mode, differences in found.items():
        for name, difference in differences.items():
            assert difference < 1e-5, (mode, name)
