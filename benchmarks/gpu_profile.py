"""Where the time of a step goes on a GPU: the kernels of a step, the longest first.

    python benchmarks/gpu_profile.py [OBJECTIVE ...] [--network resnet32]

Of the usual network also the kernels of a forward pass, as a search makes them.
"""

from __future__ import annotations

import argparse

import torch
from gpu import CUDA, METHODS, grid_model, random_data
from torch.profiler import ProfilerActivity, profile

from upright.objective import parse_objective
from upright.train import Recipe, Speed
from upright.train.learner import Learner


def show(title: str, found: profile, repeats: int, rows: int = 60) -> None:
    """Print kernels with their calls and microseconds for one repeat."""
    kernels = [event for event in found.key_averages() if event.self_device_time_total > 0]
    total = sum(event.self_device_time_total for event in kernels)
    count = sum(event.count for event in kernels)
    print(f"\n{title}: {total / repeats:.0f} us in {count / repeats:.0f} kernels", flush=True)
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:rows]:
        time, calls = event.self_device_time_total / repeats, event.count / repeats
        print(f"  {time:8.1f} us {calls:6.1f} x  {event.key[:110]}")


def show_forward(count: int = 8192) -> None:
    fused = grid_model()
    images = torch.rand(count, 3, 32, 32, device=CUDA)
    fused(images)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            fused(images)
        torch.cuda.synchronize()
    show(f"forward pass of {count} images", found, 5)


def show_step(recipe: Recipe, repeats: int = 10) -> None:
    learner = Learner(recipe, random_data(50_000), CUDA, Speed())
    for step in range(3):
        learner.step(step)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for step in range(repeats):
            learner.step(step)
        torch.cuda.synchronize()
    show(f"{recipe.objective} on {recipe.model}", found, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("objectives", nargs="*", default=METHODS)
    parser.add_argument("--network", default=Recipe.model)
    options = parser.parse_args()
    if options.network == Recipe.model:
        show_forward()
    for objective in options.objectives:
        asked = parse_objective(objective)
        show_step(Recipe(objective=asked, model=options.network, precision="bfloat16"))


if __name__ == "__main__":
    main()
