"""Where a result comes from: commit, versions and hardware."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

from upright._version import __version__
from upright.records import Origin

__all__ = ["commit", "commit_of", "hardware", "origin_on", "versions"]


def origin_on(device: torch.device | str, *, processes: int = 1) -> Origin:
    """What computes here, on a device; or on several, one for each of the processes of a job."""
    name = hardware(torch.device(device))
    several = f"{processes} x " if processes > 1 else ""
    return Origin(commit=commit(), versions=versions(), hardware=several + name)


@functools.cache
def commit() -> str | None:
    """The commit of the code that is running, as the first call found it; see ``commit_of``.

    To be asked early: what is edited later is not what this process has loaded.
    """
    return commit_of(Path(__file__).resolve().parent)


def commit_of(package: Path) -> str | None:
    """The git commit of a package, with ``+dirty`` where its files differ from it.

    Code that was copied without its history can be told its commit by ``UPRIGHT_COMMIT``. Without
    both, None.
    """
    if told := os.environ.get("UPRIGHT_COMMIT"):
        return told
    # Only a file that git tracks shows that the checkout around the package is the package's own.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    # Entries of the zoo are no code: several are added one after the other.
    changes = _git(package, "status", "--porcelain", ".", ":(exclude)zoo/entries")
    head = _git(package, "rev-parse", "HEAD")
    return f"{head}+dirty" if head and changes else head


def versions() -> dict[str, str]:
    """Versions of what computed."""
    found = {
        "upright": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def hardware(device: torch.device) -> str:
    """The name of a GPU, or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # elsewhere than on Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says about a folder; None where there is no git, or it has nothing to say of it."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
