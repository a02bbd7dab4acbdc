"""What an evaluation on a CPU gains where the process keeps the memory that it frees.

    python benchmarks/heap.py [--json FILE]      about five minutes
    python benchmarks/heap.py --tiny             some seconds, to see that it works

All poses of a grid on a few random images, by a network with random weights, in a process of its
own each: as the C library does by itself, and after ``keep_freed()``, in turns. ``user`` is work,
``kernel`` mostly pages that are cleared; both count every thread. ``memory`` is the process's peak.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path

import torch
from photograph_networks import Tiny, resnet50
from timing import machine, print_table, write_json
from torch import nn

from upright import Space, evaluate
from upright.heap import keep_freed
from upright.models import build_network


@dataclass(frozen=True)
class Job:
    """One evaluation, of random images."""

    network: Callable[[], nn.Module]
    side: int
    images: int
    grid: str
    space: str
    batch: int | None = None
    """None is the batch that is usual."""

    def run(self) -> None:
        torch.manual_seed(0)
        data = torch.rand(self.images, 3, self.side, self.side), torch.arange(self.images) % 10
        evaluate(
            self.network().eval(),
            data,
            attacks=[self.grid],
            space=Space.of(self.space),
            batch_size=self.batch,
        )


@dataclass(frozen=True)
class Cost:
    """Of one process: seconds of the evaluation alone, and MiB of the whole."""

    wall: float
    user: float
    kernel: float
    memory: float


SMALL, LARGE = "shift(3px) rotate(30)", "shift(10%) rotate(30)"
JOBS = {
    "ResNet-32, 32 px": Job(lambda: build_network("resnet32"), 32, 20, "grid-775", SMALL),
    "ResNet-50, 224 px": Job(resnet50, 224, 3, "grid-3x3x7", LARGE),
    "ResNet-50, 224 px, batches of 64": Job(resnet50, 224, 3, "grid-3x3x7", LARGE, 64),
    "tiny": Job(Tiny, 32, 2, "grid-3x3x3", SMALL),
}
HEAPS = {"as it is": (), "kept": ("--keep",)}


def measure(name: str, heap: str, threads: int) -> Cost:
    """One job in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--threads", str(threads), *HEAPS[heap]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def be_child(name: str, keep: bool, threads: int) -> None:
    """Run the job, and print what it cost."""
    if keep:
        keep_freed()
    torch.set_num_threads(threads)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    JOBS[name].run()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    user, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    print(json.dumps(asdict(Cost(wall, user, kernel, after.ru_maxrss / 1024))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all jobs on both heaps, in turns, and print the medians."""
    options = _parsed(arguments)
    if options.child:
        be_child(options.child, options.keep, options.threads)
        return
    names = ["tiny"] if options.tiny else [name for name in JOBS if name != "tiny"]
    costs: dict[tuple[str, str], list[Cost]] = {pair: [] for pair in product(names, HEAPS)}
    for _ in range(options.rounds):
        for (name, heap), found in costs.items():
            found.append(measure(name, heap, options.threads))
    rows = [[name, heap, *_medians(found)] for (name, heap), found in costs.items()]
    columns = ["network", "heap", "seconds", "user", "kernel", "memory, MiB"]
    print_table(f"{machine('cpu')}, {options.threads} threads a job, medians", columns, rows)
    figures = [
        {"network": name, "heap": heap, **asdict(each)}
        for (name, heap), found in costs.items()
        for each in found
    ]
    write_json(options.json, {"machine": machine("cpu"), "costs": figures})


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="a tiny network alone")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _medians(costs: Sequence[Cost]) -> list[str]:
    wall, user, kernel, memory = (
        statistics.median(getattr(each, field.name) for each in costs) for field in fields(Cost)
    )
    return [f"{wall:.2f}", f"{user:.2f}", f"{kernel:.2f}", f"{memory:.0f}"]


if __name__ == "__main__":
    main()
