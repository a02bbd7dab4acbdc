"""Where the time of a step goes on a GPU: the kernels of a step, the longest first.

    python benchmarks/gpu_profile.py [OBJECTIVE ...] [--network resnet32] [--batch 64]

Of the usual network also the kernels of a forward pass, as a search makes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from gpu import CUDA, METHODS, grid_model, random_data
from torch.profiler import ProfilerActivity, profile

from upright.objective import parse_objective
from upright.train import Recipe, Speed
from upright.train.learner import Learner


def show(title: str, work: Callable[[int], object], repeats: int, rows: int = 60) -> None:
    """Print the kernels of some work, with their calls and microseconds for one repeat."""
    for number in range(3):
        work(number)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for number in range(repeats):
            work(number)
        torch.cuda.synchronize()
    kernels = [event for event in found.key_averages() if event.self_device_time_total > 0]
    total = sum(event.self_device_time_total for event in kernels)
    count = sum(event.count for event in kernels)
    print(f"\n{title}: {total / repeats:.0f} us in {count / repeats:.0f} kernels", flush=True)
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:rows]:
        time, calls = event.self_device_time_total / repeats, event.count / repeats
        print(f"  {time:8.1f} us {calls:6.1f} x  {event.key[:110]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("objectives", nargs="*", default=METHODS)
    parser.add_argument("--network", default=Recipe.model)
    parser.add_argument("--batch", type=int, default=Recipe.batch, help="unique images a step")
    options = parser.parse_args()
    if options.network == Recipe.model:
        fused, images = grid_model(), torch.rand(8192, 3, 32, 32, device=CUDA)
        show("forward pass of 8192 images", lambda _: fused(images), 5)
    data = random_data(50_000)
    for objective in options.objectives:
        asked = parse_objective(objective)
        recipe = Recipe(
            objective=asked, model=options.network, batch=options.batch, precision="bfloat16"
        )
        learner = Learner(recipe, data, CUDA, Speed())
        show(f"{objective} on {options.network}", learner.step, 10)


if __name__ == "__main__":
    main()
