"""Milliseconds a training step of any network, against the time of its arithmetic alone.

    python benchmarks/gpu_networks.py [NETWORK ...] [--objectives "std*" ...] [--json FILE]

The step is that of the trainer with all that makes it fast: one CUDA graph of a compiled network.
The floor is the step's floating-point operations in convolutions and products, counted as a plain
step makes them, at the rate that a large product in bfloat16 reaches on a NVIDIA H200. Images are
random: what a step costs does not depend on what they show. On a CPU it times plain steps, to show
that it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from timing import interleave, machine, print_table, seconds_of, write_json
from torch.utils.flop_counter import FlopCounterMode

from upright.data import LabelledImages
from upright.objective import parse_objective
from upright.train import PLAIN, Recipe, Speed
from upright.train.learner import Learner

OBJECTIVES = ("std*", "KL(rob, Wo-10)")
TFLOPS = 790.0


@dataclass(frozen=True)
class Row:
    """What a step of one network and objective takes."""

    network: str
    objective: str
    ready_s: float
    """Seconds until the first step was done, with compilation and capture."""
    step_ms: float
    gflop: float
    """Operations of a step, in billions."""
    floor_ms: float

    @property
    def ratio(self) -> float:
        return self.step_ms / self.floor_ms


def random_data(count: int, side: int, device: torch.device) -> LabelledImages:
    """Random images and labels, on the device."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (count, 3, side, side)
    images = torch.randint(256, shape, generator=generator, device=device, dtype=torch.uint8)
    labels = torch.randint(10, (count,), generator=generator, device=device)
    return LabelledImages(images, labels, tuple("0123456789"))


def operations(recipe: Recipe, data: LabelledImages, device: torch.device) -> int:
    """Count the floating-point operations of one step; a multiplication and a sum are two."""
    learner = Learner(recipe, data, device, PLAIN)
    with FlopCounterMode(display=False) as counter:
        learner.step(0)
    return int(counter.get_total_flops())


def measure(
    recipe: Recipe,
    data: LabelledImages,
    device: torch.device,
    *,
    steps: int,
    repeats: int,
    tflops: float,
) -> Row:
    """Time steps after the first: the median over repeats of a number of steps in a row."""
    counted = operations(recipe, data, device)
    learner = Learner(recipe, data, device, Speed().possible_on(device))
    ready = seconds_of(lambda: learner.step(0))

    def run() -> None:
        for step in range(1, steps + 1):
            learner.step(step)

    run()
    timings = interleave(repeats, {"run": run})
    return Row(
        recipe.model,
        str(recipe.objective),
        ready,
        1000 * timings.median("run") / steps,
        counted / 1e9,
        counted / tflops / 1e9,
    )


def show(rows: Sequence[Row], title: str) -> None:
    print_table(
        title,
        ("network", "objective", "ready, s", "ms a step", "GFLOP a step", "floor, ms", "ratio"),
        [
            (
                row.network,
                row.objective,
                f"{row.ready_s:.0f}",
                f"{row.step_ms:.2f}",
                f"{row.gflop:.4g}",
                f"{row.floor_ms:.3g}",
                f"{row.ratio:.2f}",
            )
            for row in rows
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    data = random_data(max(1024, options.batch), options.side, torch.device(kind))
    title = f"A training step: {options.batch} images of {options.side} px, {machine(kind)}"
    rows: list[Row] = []
    for network in options.networks:
        for objective in options.objectives:
            recipe = Recipe(
                objective=parse_objective(objective),
                model=network,
                batch=options.batch,
                precision="bfloat16",
            )
            rows.append(
                measure(
                    recipe,
                    data,
                    torch.device(kind),
                    steps=options.steps,
                    repeats=options.repeats,
                    tflops=options.tflops,
                )
            )
            # After each: compilation takes minutes, and what is done should not be lost.
            write_json(
                options.json,
                {
                    "machine": machine(kind),
                    "tflops": options.tflops,
                    "rows": [asdict(row) | {"ratio": row.ratio} for row in rows],
                },
            )
            print(f"{network}, {objective}: {rows[-1].step_ms:.3f} ms a step", flush=True)
    show(rows, title)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time training steps against their arithmetic.")
    parser.add_argument("networks", nargs="*", default=["gresnet44"], help="networks by name")
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES)
    parser.add_argument("--batch", type=int, default=64, help="unique images a step")
    parser.add_argument("--side", type=int, default=32, help="height and width of images, in px")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed in a row")
    parser.add_argument("--repeats", type=int, default=5, help="how often they are timed")
    parser.add_argument("--tflops", type=float, default=TFLOPS, help="rate of the floor, TFLOP/s")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
