"""Programs of this folder that run Triton's kernels in its interpreter, where no GPU is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

__all__ = ["needs_interpreter", "said_in_interpreter"]


def _why_not() -> str:
    """Why kernels cannot be interpreted here; empty where they can be."""
    if importlib.util.find_spec("triton") is None:
        return "needs triton, for Linux alone"
    # Before 3.7 it takes int() of arrays of one value, which numpy 2.5 refuses.
    if _release("triton") < (3, 7) and _release("numpy") >= (2, 5):
        return "Triton's interpreter needs triton 3.7 or newer beside numpy 2.5"
    return ""


def _release(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version(package).split(".")[:2])


needs_interpreter = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


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
