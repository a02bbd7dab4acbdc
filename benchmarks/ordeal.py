"""All that can go wrong, in one command: kills, hostile input, and a soak on a disk that fills.

    python benchmarks/ordeal.py --seed 20261116 --minutes 100 --json figures.json

kills 1,000 processes at random moments, while they train, evaluate, fetch a data set, append
records or work for a Ray cluster; hands 100,000 edited inputs to all readers; and soaks for an hour
(``soak.py``) beside both. ``--kills``, ``--inputs`` and ``--soak-minutes`` say how much of each, 0
for nothing. Ends with status 1 where anything went wrong, or was not done in time.

    python benchmarks/ordeal.py --markdown docs/robustness.md --from figures.json

writes the table of earlier figures into a page, between the marks that it has for that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordeal_inputs import read_inputs
from ordeal_kills import KillFigures, kill_jobs, kill_under_ray
from timing import machine, print_table, write_json

from upright.origin import commit
from upright.report.sections import fill_sections

HERE = Path(__file__).parent
RAY_EVERY = 25
"""One kill in so many is of a cluster, where it takes some fifteen seconds."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Clock:
    """A time limit for all parts together."""

    end: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.end - time.monotonic())


def ordeal(options: argparse.Namespace) -> Figures:
    """Go through all parts that are asked for, and give what came of them."""
    began, workers = time.monotonic(), options.workers
    clock = Clock(began + 60 * options.minutes)
    figures: Figures = {"seed": options.seed, "commit": commit(), "machine": machine("cpu")}
    with tempfile.TemporaryDirectory(prefix="ordeal-") as desk:
        soak = _start_soak(options, Path(desk)) if options.soak_minutes else None
        try:
            if options.kills:
                figures["kills"] = _kill(options.kills, options.seed, workers, clock)
            if options.inputs:
                read = read_inputs(
                    options.inputs, seed=options.seed, workers=workers, limit_s=clock.left_s
                )
                figures["inputs"] = {"asked": options.inputs, **vars(read)}
            if soak is not None:
                figures["soak"] = _end_soak(soak, Path(desk), options.soak_minutes, clock)
        finally:
            if soak is not None and soak.poll() is None:
                soak.send_signal(signal.SIGINT)  # it has a disk and a process to take down
                soak.wait()
    return figures | {"seconds": round(time.monotonic() - began, 1)}


def _kill(kills: int, seed: int, lanes: int, clock: Clock) -> Figures:
    by_ray = kills // RAY_EVERY
    figures: KillFigures = kill_jobs(kills - by_ray, seed=seed, lanes=lanes, limit_s=clock.left_s)
    if by_ray:
        under_ray = kill_under_ray(by_ray, seed=seed, limit_s=clock.left_s)
        figures.add(under_ray)
        figures.seconds += under_ray.seconds
    return {"asked": kills, "done": figures.kills.total(), **vars(figures)}


def _start_soak(options: argparse.Namespace, desk: Path) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, str(HERE / "soak.py"), "--json", str(desk / "soak.json")),
        *("--minutes", str(min(options.soak_minutes, options.minutes))),
        *("--seed", str(options.seed)),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def _end_soak(soak: subprocess.Popen[bytes], desk: Path, minutes: float, clock: Clock) -> Figures:
    with suppress(subprocess.TimeoutExpired):
        # It ends with a whole cycle, for which there is time where there was any to begin with.
        soak.wait(timeout=max(clock.left_s, 60.0))
    file = desk / "soak.json"
    found = json.loads(file.read_text()) if file.exists() else {"results lost": {"all": 1}}
    return {"asked": minutes, **found}


def troubles(figures: Figures) -> list[str]:
    """All that went wrong, or was not done in time, in words."""
    kills, inputs, soak = (figures.get(part, {}) for part in ("kills", "inputs", "soak"))
    wrong = [f"kills: {count} x {kind}" for kind, count in kills.get("faults", {}).items()]
    wrong += [f"inputs: {count} x {kind}" for kind, count in inputs.get("faults", {}).items()]
    wrong += [f"soak: {count} x {kind}" for kind, count in soak.get("results lost", {}).items()]
    if kills and kills["done"] < kills["asked"]:
        wrong.append(f"only {kills['done']} of {kills['asked']} kills in time")
    if inputs and inputs["inputs"] < inputs["asked"]:
        wrong.append(f"only {inputs['inputs']} of {inputs['asked']} inputs in time")
    if soak and soak.get("minutes", 0.0) + 0.05 < soak["asked"]:
        wrong.append(f"only {soak.get('minutes', 0.0)} of {soak['asked']} minutes of soak")
    return wrong


def rows(figures: Figures) -> list[tuple[str, str]]:
    """The figures as a table, a part that was left out without rows."""
    found: list[tuple[str, str]] = []
    if kills := figures.get("kills"):
        named = ", ".join(f"{count:,} of {name}" for name, count in kills["kills"].items())
        found += [
            (f"kills ({named})", f"{kills['done']:,}"),
            ("of these, within 2 ms after a file appeared", f"{kills['aimed']:,}"),
            ("brought to their end and compared", f"{sum(kills['ends'].values()):,}"),
            ("other bits, lost, twice, or left behind", f"{sum(kills['faults'].values()):,}"),
        ]
    if inputs := figures.get("inputs"):
        faults = inputs["faults"]
        crashes = sum(faults.get(kind, 0) for kind in ("traceback", "crash", "escape"))
        found += [
            (f"edited inputs, of {len(inputs['by_target'])} readers", f"{inputs['inputs']:,}"),
            ("tracebacks, crashes, escapes", f"{crashes:,}"),
            ("longer than 10 s", f"{faults.get('hang', 0):,}"),
            ("over the stated memory", f"{faults.get('memory', 0):,}"),
            ("altered, and accepted", f"{faults.get('altered', 0):,}"),
        ]
    if soak := figures.get("soak"):
        found += [
            ("minutes of soak", f"{soak.get('minutes', 0)}"),
            ("faults injected", f"{sum(soak.get('faults', {}).values()):,}"),
            ("of these, a full disk or one that fills and empties", _full_disks(soak)),
            ("results lost", f"{sum(soak['results lost'].values()):,}"),
        ]
    return [*found, ("minutes in all", f"{figures['seconds'] / 60:.1f}")]


def _full_disks(soak: Figures) -> str:
    faults = soak.get("faults", {})
    return f"{faults.get('full disk', 0) + faults.get('tide', 0):,}"


def to_markdown(figures: Figures) -> str:
    origin = f"seed {figures['seed']}, commit {str(figures['commit'])[:12]}"
    lines = [f"| {name} | {value} |" for name, value in rows(figures)]
    return "\n".join([f"| {origin} | |", "|---|---:|", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    known = options.earlier
    figures = json.loads(known.read_text()) if known is not None else ordeal(options)
    wrong = troubles(figures)
    print_table(f"ordeal, seed {figures['seed']}", ["", "figure"], rows(figures))
    print("\n".join(wrong) or "nothing went wrong")
    write_json(options.json, figures | {"troubles": wrong})
    if options.markdown is not None:
        page = options.markdown
        page.write_text(fill_sections(page.read_text(), {"ordeal": to_markdown(figures)}))
    return int(bool(wrong))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--seed", type=int, default=0, help="moments of kills depend on the machine, too")
    add("--minutes", type=float, default=100.0, help="the time limit of all parts together")
    add("--kills", type=int, default=1000)
    add("--inputs", type=int, default=100_000)
    add("--soak-minutes", type=float, default=60.0)
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes side by side")
    add("--json", type=Path, help="also write the figures to this file")
    add("--markdown", type=Path, help="also write the table into this page")
    add("--from", type=Path, dest="earlier", help="only show the figures of this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
