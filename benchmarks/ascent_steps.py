"""How much a climb of S-PGD gains on its random start, for several step sizes.

    python benchmarks/ascent_steps.py [MODEL] [--data cifar10] [--limit 1000] [--interpolation ...]

The paper prints the steps [0.03, 0.03, 0.3] without units. All climbs start from the same poses.
Two cores take about three minutes.
"""

from __future__ import annotations

import argparse
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from upright import Pose, warp
from upright.attacks.pgd import SpatialPGD
from upright.data import load_data
from upright.sources import load_model
from upright.space import PAPER
from upright.warp import Interpolation

STEP_SIZES = (
    (0.01, 0.01, 0.1),
    (0.03, 0.03, 0.3),
    (0.1, 0.1, 1.0),
    (0.3, 0.3, 3.0),
    (0.96, 0.96, 0.3),
    (0.03, 0.03, 17.2),
    (0.96, 0.96, 17.2),
)
"""Pixels and degrees; in the last three a shift, a turn or both are the paper's, read as parts of a
32 px image and as radians."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="zoo:cifar10/std-star")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--interpolation", default="bilinear", choices=get_args(Interpolation))
    options = parser.parse_args()
    model = load_model(options.model, device=torch.device("cpu"))
    data = load_data(options.data, split="test", limit=options.limit)
    images, labels = data.images.float() / 255, data.labels

    def logits_at(pose: Pose) -> Tensor:
        return model(warp(images, pose, interpolation=options.interpolation))

    def loss(pose: Pose) -> Tensor:
        return F.cross_entropy(logits_at(pose), labels, reduction="none")

    def show(name: str, found: Pose, start: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            logits = logits_at(found)
        worse = F.cross_entropy(logits, labels, reduction="none")
        right = (logits.argmax(1) == labels).float().mean()
        line = f"{name}: cross-entropy {worse.mean():.3f}, accuracy {100 * right:.1f} %"
        if start is not None:
            line += f", higher for {100 * (worse > start).float().mean():.0f} %"
        print(line, flush=True)
        return worse

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    print(f"{options.model} on {len(data)} images of {options.data}, {options.interpolation}")
    start = show("a random pose", PAPER.sample(len(data), generator=seeded()))
    for size in STEP_SIZES:
        climb = SpatialPGD(step_size=size)
        found = climb.worst_pose(loss, PAPER, len(data), generator=seeded())
        show(f"after steps of {size[0]:g} px and {size[2]:g} degrees", found, start)
    poses = PAPER.sample(len(data), 10, generator=seeded())
    with torch.no_grad():
        tries = torch.stack([loss(poses[:, number]) for number in range(10)])
    print(f"the worst of 10 random poses: cross-entropy {tries.amax(0).mean():.3f}")


if __name__ == "__main__":
    main()
