"""Fuzz the readers with atheris, one after the other, and print how many inputs were tried.

    python fuzz/run.py TARGET [TARGET ...] --seconds N [--json FILE]
    python fuzz/run.py --all --seconds 60

Needs ``pip install -c constraints.txt '.[fuzz]'``. An input that crashes a reader is kept in the
folder ``crashes``; the status is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
CRASHES = Path("crashes")


@dataclass(frozen=True)
class Figures:
    """What came of one target."""

    target: str
    inputs: int
    seconds: int
    coverage: int
    """Branches of the project that were reached, as atheris counts them."""
    crash: str
    """The last lines of what was said, or nothing where all went well."""


def fuzz(target: str, seconds: int) -> Figures:
    """Fuzz a target in a process of its own, which a crash may take along."""
    fast = Path("/dev/shm")
    with TemporaryDirectory(dir=fast if fast.is_dir() else None, prefix="fuzz-") as folder:
        command = [sys.executable, str(HERE / "one.py"), target, folder, str(seconds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        for file in Path(folder).iterdir():
            if re.match("crash-|timeout-|oom-|leak-", file.name):
                CRASHES.mkdir(exist_ok=True)
                shutil.copyfile(file, CRASHES / f"{target}-{file.name}")
    crash = done.stdout[-3000:] + done.stderr[-1000:] if done.returncode else ""
    return Figures(
        target,
        _last(r"stat::number_of_executed_units:\s*(\d+)", done.stderr),
        seconds,
        _last(r"cov: (\d+)", done.stderr),
        crash,
    )


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    targets = options.targets
    if options.all:
        sys.path.insert(0, str(HERE))
        from targets import TARGETS

        targets = list(TARGETS)
    results = []
    print(f"{'target':<14}{'inputs':>10}{'seconds':>9}{'coverage':>10}  crashes", flush=True)
    for target in targets:
        found = fuzz(target, options.seconds)
        crashed = int(bool(found.crash))
        figures = f"{found.inputs:>10,}{found.seconds:>9}{found.coverage:>10}"
        print(f"{target:<14}{figures}  {crashed}", flush=True)
        if found.crash:
            print(found.crash, file=sys.stderr, flush=True)
        results.append(found)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")
    return int(any(each.crash for each in results))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fuzz what reads input.")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--all", action="store_true", help="all targets")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
