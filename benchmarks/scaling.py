"""ImageNet on paper: passes, bytes, GPU hours, and where more GPUs stop helping.

    python benchmarks/scaling.py [--vit-utilisation 0.4]

Prints the tables of docs/scaling.md. Throughput is what this project measured on an NVIDIA H200, or
arithmetic at an assumed utilisation, as said below; the ranks are simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from large_networks import CLASSES, Network, resnet50, vit_large
from simulation import (
    Link,
    Sharing,
    Step,
    best_interval,
    chunk_passes,
    makespan,
    run_seconds,
    step_time,
)
from timing import print_table

# Measured, docs/performance.md.
SEARCH_RATIO = 1.08
TRIES_WHEN_FOOLED = 24.0  # on the robust network

# Assumed.
ROBUST = 0.5  # of the images stay right under every pose
LINK = Link(bytes_per_second=50e9, latency=10e-6)  # 400 Gbit/s for each GPU
JITTER = 0.05  # relative spread of a rank's time for a step
SLOW, SLOW_SPEED = 0.02, 0.8  # a rank in fifty is slower by a fifth for good
GPU_HOURS_BETWEEN_FAILURES = 50_000.0
DISK_BYTES_PER_SECOND = 1e9
RESTART_SECONDS = 300.0

VALIDATION_IMAGES, TRAIN_IMAGES = 50_000, 1_281_167
IMAGE_BYTES = 3 * 224 * 224
CHUNK = 2**24 // (4 * IMAGE_BYTES)  # images; see evaluation/stream.py
POSES = {"grid-775": 775, "grid-7500": 7500}


@dataclass(frozen=True)
class Objective:
    """A training objective by its passes for each unique image; a backward pass counts as two."""

    name: str
    searched: int
    trained: int

    @property
    def passes(self) -> int:
        return self.searched + 3 * self.trained


OBJECTIVES = (Objective("AT(rob, Wo-10)", 10, 1), Objective("KL(rob, Wo-10)", 11, 2))


def evaluation_seconds(network: Network, passes: float) -> float:
    """Seconds on one GPU, with what the search adds."""
    return SEARCH_RATIO * passes / network.passes_per_second


def step_of(network: Network, objective: Objective, ranks: int, *, sync: bool = False) -> Step:
    """A training step on one of so many ranks."""
    images = network.batch / ranks
    in_the_step = images / network.passes_per_second
    return Step(
        compute=objective.passes * in_the_step,
        backward=2 * objective.trained * in_the_step,
        gradient_bytes=4 * network.parameters,
        norms=network.norms if sync else 0,
        norm_bytes=4 * ranks * (2 * network.norm_channels + 1),
    )


def work_rows(networks: Sequence[Network]) -> list[tuple[str, ...]]:
    """Passes, arithmetic, bytes and GPU hours of each job on one GPU."""
    rows = []
    for network in networks:
        for name, poses in POSES.items():
            passes = VALIDATION_IMAGES * (1 + poses)
            size = VALIDATION_IMAGES * IMAGE_BYTES
            seconds = evaluation_seconds(network, passes)
            rows.append(_work_row(f"{network.name}, {name}", network, passes, size, seconds))
        for objective in OBJECTIVES:
            images = TRAIN_IMAGES * network.epochs
            passes = images * objective.passes
            name = f"{network.name}, {objective.name}, {network.epochs} epochs"
            seconds = passes / network.passes_per_second
            rows.append(_work_row(name, network, passes, images * IMAGE_BYTES, seconds))
    return rows


def _work_row(
    name: str, network: Network, passes: float, size: float, seconds: float
) -> tuple[str, ...]:
    rate = size / seconds / 1e6
    hours = seconds / 3600
    return (
        name,
        f"{passes / 1e6:,.0f}",
        f"{passes * network.forward_flop / 1e18:,.1f}",
        f"{size / 1e9:,.1f}",
        f"{rate:,.1f}",
        f"{hours:,.1f}",
    )


def evaluation_rows(network: Network, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Efficiency of sharing grid-7500 over ranks, exhaustively and with fooled images dropped."""
    poses = POSES["grid-7500"]
    chunks = -(-VALIDATION_IMAGES // CHUNK)
    sizes = [min(CHUNK, VALIDATION_IMAGES - CHUNK * number) for number in range(chunks)]
    exhaustive = [float(size * (1 + poses)) for size in sizes]
    dropped = chunk_passes(
        VALIDATION_IMAGES,
        CHUNK,
        poses,
        robust=ROBUST,
        tries=TRIES_WHEN_FOOLED,
        classes=CLASSES,
        rng=rng,
    )
    rows = []
    for ranks in (1, 8, 64, 256, 1024):
        alike = [1.0] * ranks
        uneven = [SLOW_SPEED if rank < max(1, SLOW * ranks) else 1.0 for rank in range(ranks)]
        cases: list[tuple[list[float], list[float], Sharing]] = [
            (exhaustive, alike, "turns"),
            (dropped, alike, "blocks"),
            (dropped, alike, "turns"),
            (dropped, alike, "first free"),
            (dropped, uneven, "turns"),
            (dropped, uneven, "first free"),
        ]
        found = [f"{100 * efficiency(works, speeds, how):.0f}" for works, speeds, how in cases]
        longest = evaluation_seconds(network, makespan(exhaustive, alike, "turns")) / 3600
        rows.append((str(ranks), f"{longest:.2f}", *found))
    return rows


def efficiency(works: Sequence[float], speeds: Sequence[float], sharing: Sharing) -> float:
    """The ideal time, in which no rank ever waits, to the time that it takes."""
    return sum(works) / sum(speeds) / makespan(works, speeds, sharing)


def training_rows(
    network: Network, rng: np.random.Generator, *, sync: bool = False
) -> list[tuple[str, ...]]:
    """Steps of KL(rob, Wo-10) on more and more ranks, the batch of unique images as it is."""
    objective = OBJECTIVES[1]
    rows = []
    steps = TRAIN_IMAGES * network.epochs // network.batch
    write = 8 * network.parameters / DISK_BYTES_PER_SECOND  # weights and momentum
    for ranks in (1, 8, 64, 256, 1024):
        step = step_of(network, objective, ranks, sync=sync)
        time = step_time(step, LINK, ranks, jitter=JITTER, rng=rng)
        apart = 3600 * GPU_HOURS_BETWEEN_FAILURES / ranks
        interval = best_interval(write, apart)
        run = run_seconds(
            steps * time.total,
            interval=interval,
            write=write,
            restart=RESTART_SECONDS,
            between_failures=apart,
            rng=rng,
        )
        ideal = step_of(network, objective, 1).compute * steps / ranks
        parts = (time.compute, time.stragglers, time.gradients, time.norms)
        rows.append(
            (
                str(ranks),
                f"{network.batch / ranks:g}",
                *(f"{1000 * part:,.1f}" for part in parts),
                f"{run / 3600:,.1f}",
                f"{100 * ideal / run:.0f}",
            )
        )
    return rows


def checkpoint_rows(network: Network, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """What intervals between checkpoints cost a run of a day on 1,024 GPUs, mean of 200 runs."""
    day, apart = 86_400.0, 3600 * GPU_HOURS_BETWEEN_FAILURES / 1024
    write = 8 * network.parameters / DISK_BYTES_PER_SECOND
    best = best_interval(write, apart)
    rows: list[tuple[str, ...]] = []
    for factor in (0.1, 0.5, 1.0, 2.0, 10.0):
        runs = [
            run_seconds(
                day,
                interval=factor * best,
                write=write,
                restart=RESTART_SECONDS,
                between_failures=apart,
                rng=rng,
            )
            for _ in range(200)
        ]
        lost = 100 * (float(np.mean(runs)) / day - 1)
        rows.append((f"{factor:g}", f"{factor * best / 60:.1f}", f"{lost:.2f}"))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    rng = np.random.default_rng(0)
    vit, resnet = vit_large(options.vit_utilisation), resnet50()
    print_table(
        "One GPU",
        ("job", "10⁶ passes", "EFLOP", "GB read", "MB/s", "GPU hours"),
        work_rows((resnet, vit)),
    )
    print_table(
        f"{vit.name}, grid-7500: hours for all poses, efficiency in %; * with a slow GPU in 50",
        ("GPUs", "hours", "all poses", "blocks", "turns", "first free", "turns*", "first free*"),
        evaluation_rows(vit, rng),
    )
    for network, sync in ((resnet, False), (resnet, True), (vit, False)):
        norms = ", synchronised norms" if sync else ""
        print_table(
            f"{network.name}, KL(rob, Wo-10), batch {network.batch}{norms}: ms a step, the run",
            ("GPUs", "images each", "compute", "stragglers", "gradients", "norms", "hours", "%"),
            training_rows(network, rng, sync=sync),
        )
    print_table(
        f"Checkpoints, {vit.name} on 1,024 GPUs",
        ("of Young's interval", "minutes", "% lost"),
        checkpoint_rows(vit, rng),
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Plan ImageNet on many GPUs.")
    parser.add_argument(
        "--vit-utilisation", type=float, default=0.4, help="of a large matrix product, assumed"
    )
    return parser


if __name__ == "__main__":
    main()
