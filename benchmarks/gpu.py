"""How fast the GPU engine is: milliseconds a training step, and seconds for a whole grid.

    python benchmarks/gpu.py [--json FILE] [--only grid,steps,families,together,plain]

ResNet-32, 64 unique 32x32 images a step, bfloat16; the grid in float16. One NVIDIA H200 takes about
four minutes, most of it compilation. Images are random: what a step costs does not depend on what
they show.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from upright import PAPER, Space, evaluate, parse_attack
from upright.data import LabelledImages
from upright.models import FusedResNet, build_network
from upright.models.resnet import ResNet
from upright.objective import parse_objective
from upright.train import PLAIN, Recipe, Speed
from upright.train.learner import Learner

SPACES = {
    "shift(3px) rotate(30) zoom(0.9..1.1)": "grid-5x5x31x5",
    "shift(3px) rotate(30) shear(10)": "grid-5x5x31x5x1",
    "shift(3px) rotate(30) brightness(0.2)": "grid-5x5x31x5",
}
"""Spaces beside the paper's, with a grid of 3,875 poses: by the kernel that reads poses, by the one
that reads maps, and with one more pass over the pixels."""
METHODS = ("std*", "AT(rob, Wo-10)", "KL(rob, Wo-10)", "KL-C(mix, S-PGD)")
CUDA = torch.device("cuda")
FAST = Speed()


def random_data(count: int) -> LabelledImages:
    """Random images, on the GPU."""
    generator = torch.Generator(CUDA).manual_seed(0)
    images = torch.randint(
        256, (count, 3, 32, 32), generator=generator, device=CUDA, dtype=torch.uint8
    )
    labels = torch.randint(10, (count,), generator=generator, device=CUDA)
    return LabelledImages(images, labels, tuple("0123456789"))


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of some work, by the device's own clock, after a warm-up."""
    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def step_time(
    objective: str,
    data: LabelledImages,
    speed: Speed = FAST,
    steps: int = 100,
    space: Space = PAPER,
) -> float:
    """Milliseconds a step of one run alone."""
    return together_time(objective, data, 1, steps, speed, space)


def together_time(
    objective: str,
    data: LabelledImages,
    count: int,
    steps: int = 50,
    speed: Speed = FAST,
    space: Space = PAPER,
) -> float:
    """Milliseconds per run and step of several runs at once, as ``train_together`` has them."""
    learners = [
        Learner(_recipe(objective, seed, space), data, CUDA, speed) for seed in range(count)
    ]
    began = time.perf_counter()
    for learner in learners:
        learner.make_ready()
    print(f"    {objective}: ready after {time.perf_counter() - began:.0f} s", flush=True)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        for step in range(steps):
            for learner in learners:
                learner.step(step)
        torch.cuda.synchronize()  # on all streams: each run has one of its own
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times[1:]) / steps / count


def grid_model() -> FusedResNet:
    """A network as an evaluation runs it."""
    model = build_network("resnet32").to(CUDA).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    assert isinstance(model, ResNet)
    return FusedResNet(model, torch.float16).freeze()


def grid_times(
    data: LabelledImages, batch: int, space: Space = PAPER, attack: str = "grid-775"
) -> dict[str, float]:
    """Seconds for every pose of every image, and for as many plain forward passes."""
    fused = grid_model()
    poses = parse_attack(attack).passes_per_image
    few = (data.images[:1024], data.labels[:1024])
    small = "x".join("3" for _ in space.axes)
    evaluate(fused, few, attacks=[f"grid-{small}"], space=space, device=CUDA, batch_size=batch)
    every, seconds = (data.images, data.labels), []
    for _ in range(3):  # the median: one may be disturbed
        began = time.perf_counter()
        evaluate(fused, every, attacks=[attack], space=space, device=CUDA, batch_size=batch)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    grid = statistics.median(seconds)
    ready = torch.rand(batch, 3, 32, 32, device=CUDA)
    one_pass = milliseconds(lambda: fused(ready), 20) / 1000
    passes = poses * len(data) / batch
    return {
        f"{attack}, seconds": grid,
        "plain passes, seconds": passes * one_pass,
        "ratio": grid / (passes * one_pass),
        "images a second": poses * len(data) / grid,
    }


def _recipe(objective: str, seed: int, space: Space) -> Recipe:
    return Recipe(
        objective=parse_objective(objective), precision="bfloat16", seed=seed, space=space
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="grid,steps,families,together,plain")
    parser.add_argument("--batch", type=int, default=8192)
    options = parser.parse_args()
    wanted = options.only.split(",")
    found: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        found[name] = round(value, 4)
        print(f"{name}: {value:.3f}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1))

    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    if "grid" in wanted:
        for name, value in grid_times(random_data(10_000), options.batch).items():
            note(name, value)
    data = random_data(50_000)
    if "steps" in wanted:
        for objective in METHODS:
            note(f"{objective} step, ms", step_time(objective, data, FAST))
    if "families" in wanted:
        usual = step_time("KL(rob, Wo-10)", data)
        note("KL(rob, Wo-10) step, ms, once more", usual)
        for text, attack in SPACES.items():
            space = Space.of(text)
            found_times = grid_times(random_data(2_000), options.batch, space, attack)
            note(f"{text}: {attack} to plain passes", found_times["ratio"])
            step = step_time("KL(rob, Wo-10)", data, space=space)
            note(f"{text}: KL(rob, Wo-10) step, ms", step)
            note(f"{text}: step to that of the paper's space", step / usual)
    if "together" in wanted:
        for count in (4,):
            name = f"KL(rob, Wo-10), {count} runs at once, per run and step, ms"
            note(name, together_time("KL(rob, Wo-10)", data, count))
    if "plain" in wanted:
        for name, speed in (
            ("no kernels", Speed(kernels=False)),
            ("no compilation, no kernels", Speed(compile=False, kernels=False)),
            ("plain", PLAIN),
        ):
            value = step_time("KL(rob, Wo-10)", data, speed, steps=20)
            note(f"KL(rob, Wo-10) step, {name}, ms", value)


if __name__ == "__main__":
    main()
