"""Programs of this folder that run Triton's kernels in its interpreter, where no GPU is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

__all__ = ["needs_triton", "said_in_interpreter"]

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs triton, for Linux alone"
)


def said_in_interpreter(program: str, *arguments: str) -> Any:
    """What a program prints, as JSON.

    In a process of its own: Triton looks once, when it is imported, whether it is to interpret.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name(program)), *arguments],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
