"""Evaluation throughput on one process and on several that share the images, one thread each.

    python benchmarks/ranks.py [--processes 2] [--repeats 5] [--json FILE]

Ideal is the throughput of one process times the number of processes. Beside it stand as many
processes that know nothing of each other, each with its part of the images: what they miss of the
ideal is the machine's doing (shared cache, memory and power), the rest is the sharing's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from timing import machine, print_table, seconds_of, write_json

from upright import evaluate, parse_attack
from upright.data import load_data
from upright.models import build_network
from upright.ranks import ALONE, Ranks

Kind = Literal["one", "shared", "apart"]
KINDS: tuple[Kind, ...] = ("one", "shared", "apart")
CHUNK = 512


@dataclass(frozen=True)
class Setting:
    processes: int
    chunks: int
    model: str
    attack: str
    repeats: int
    port: int

    @property
    def schedule(self) -> list[Kind]:
        """Forwards and backwards, so that none has the better moments."""
        rounds = [KINDS[:: 1 if repeat % 2 == 0 else -1] for repeat in range(self.repeats)]
        return [kind for one_round in rounds for kind in one_round]

    @property
    def images(self) -> int:
        return CHUNK * self.chunks * self.processes


@dataclass(frozen=True)
class Row:
    processes: str
    seconds: float
    """Median over rounds, of the slowest process."""
    passes_per_second: float
    ratio_to_ideal: float
    """Median over rounds of this throughput to the ideal one in the same round."""


def work(rank: int, setting: Setting, barrier: Any, results: Any) -> None:
    """Follow the schedule, in step with the other processes."""
    torch.set_num_threads(1)
    store = f"tcp://localhost:{setting.port}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=setting.processes)
    torch.manual_seed(0)
    model = build_network(setting.model, classes=10, channels=3).eval()
    data = load_data("glyphs", limit=setting.images)
    part = Ranks(rank, setting.processes).part(setting.images)
    jobs: dict[Kind, tuple[Any, Any, Ranks]] = {
        "one": (data.images, data.labels, ALONE),
        "shared": (data.images, data.labels, Ranks(rank, setting.processes)),
        "apart": (part.take(data.images), part.take(data.labels), ALONE),
    }
    evaluate(model, (data.images[:64], data.labels[:64]), attacks=[setting.attack])  # to warm up
    for number, kind in enumerate(setting.schedule):
        images, labels, ranks = jobs[kind]
        barrier.wait()
        if kind != "one" or rank == 0:
            seconds = seconds_of(
                lambda: evaluate(model, (images, labels), attacks=[setting.attack], ranks=ranks)  # noqa: B023
            )
            results.put((number, seconds))
        barrier.wait()
    dist.destroy_process_group()


def measure(setting: Setting) -> list[Row]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(setting.processes), context.Queue()
    arguments = (setting, barrier, results)
    workers = [
        context.Process(target=work, args=(rank, *arguments), daemon=True)
        for rank in range(setting.processes)
    ]
    for worker in workers:
        worker.start()
    counts = {"one": 1, "shared": setting.processes, "apart": setting.processes}
    times: list[float] = [0.0] * len(setting.schedule)
    for _ in range(sum(counts[kind] for kind in setting.schedule)):
        number, seconds = results.get(timeout=600)
        times[number] = max(times[number], seconds)
    for worker in workers:
        worker.join()
    return rows_of(setting, times)


def rows_of(setting: Setting, times: Sequence[float]) -> list[Row]:
    """Sum up the seconds of each job in the schedule."""
    found = {
        kind: [t for t, of in zip(times, setting.schedule, strict=True) if of == kind]
        for kind in KINDS
    }
    passes = evaluation_passes(setting)
    names = {
        "one": "1",
        "shared": f"{setting.processes}, sharing the images",
        "apart": f"{setting.processes}, apart",
    }
    rows = []
    for kind in KINDS:
        processes = 1 if kind == "one" else setting.processes
        ratios = [
            one / (processes * mine) for one, mine in zip(found["one"], found[kind], strict=True)
        ]
        seconds = statistics.median(found[kind])
        rows.append(Row(names[kind], seconds, passes / seconds, statistics.median(ratios)))
    return rows


def evaluation_passes(setting: Setting) -> int:
    return setting.images * (1 + parse_attack(setting.attack).passes_per_image)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    setting = Setting(
        options.processes,
        options.chunks,
        options.model,
        options.attack,
        options.repeats,
        free_port(),
    )
    rows = measure(setting)
    torch.set_num_threads(1)
    title = (
        f"Evaluation: {setting.model}, {setting.images} images, {setting.attack}, each process "
        f"{machine('cpu')}"
    )
    print_table(
        title,
        ("processes", "seconds", "passes a second", "ratio to ideal"),
        [
            (
                row.processes,
                f"{row.seconds:.2f}",
                f"{row.passes_per_second:,.0f}",
                f"{row.ratio_to_ideal:.3f}",
            )
            for row in rows
        ],
    )
    write_json(options.json, {"machine": machine("cpu"), "rows": [asdict(row) for row in rows]})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time evaluations on one and several processes.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=1, help=f"of {CHUNK} images, a process")
    parser.add_argument("--model", default="resnet8x0.5", help="a network by its name")
    parser.add_argument("--attack", default="grid-3x1x3")
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
