"""How much of a large rotation STN and ETN undo, before and after they learned from labels alone.

    python benchmarks/straighten.py [--networks stn10x0.25 etn10x0.25] [--steps 1200]

Glyphs, at half their size, turned by up to 75 degrees. Each test image has an upright twin:
same digit, font, colours and noise. A network that undoes rotations brings both to the same
orientation, whichever that is; the remaining angle is by how far it does not. Before training,
nothing is undone.

together:    network and classifier learn from turned digits, as in any training; nothing forces
             the network to straighten what its classifier can learn to read.
in sequence: the classifier learns upright digits alone and stays as it is; then the transformers
             learn from turned ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from upright.data.glyphs import NONE, Spread, glyphs
from upright.data.glyphs.number import Number
from upright.models import build_network
from upright.models.transformer import Straightening

MAX_ROTATION = 75.0
WAYS = ("together", "in sequence")
_SEED = 0


@dataclass(frozen=True)
class Twins:
    """Test images twice, upright and turned; angles in degrees, counter-clockwise."""

    upright: Tensor
    turned: Tensor
    angles: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Measured:
    remaining_degrees: float
    """The median over all images."""
    accuracy: float
    """Of turned images."""


def images_of(count: int, spread: Spread, split: str) -> tuple[Tensor, Tensor]:
    """Make glyphs at half their size, and their labels."""
    data = glyphs(count, seed=_SEED, spread=spread, split=split)  # type: ignore[arg-type]
    return F.avg_pool2d(data.as_float(), 2), data.labels


def twins_of(count: int) -> Twins:
    turned, labels = images_of(count, Spread(MAX_ROTATION, 0), "test")
    upright, _ = images_of(count, NONE, "test")
    # The number is the first that is drawn of an image, from a generator of its own.
    draws = (np.random.default_rng([_SEED, 1, index]) for index in range(count))
    angles = [Number.draw(rng, MAX_ROTATION, 0).angle for rng in draws]
    return Twins(upright, turned, torch.tensor(angles), labels)


def found_angles(model: Straightening, images: Tensor) -> Tensor:
    """The rotation in the maps that a network finds, in degrees."""
    maps = model.maps(images)
    return torch.rad2deg(torch.atan2(maps[:, 0, 1] - maps[:, 1, 0], maps[:, 0, 0] + maps[:, 1, 1]))


@torch.no_grad()
def measure(model: Straightening, twins: Twins) -> Measured:
    model.eval()
    undone = found_angles(model, twins.turned) - found_angles(model, twins.upright)
    remaining = torch.remainder(twins.angles - undone + 180, 360) - 180
    right = model(twins.turned).argmax(1) == twins.labels
    return Measured(float(remaining.abs().median()), float(right.float().mean()))


def learn(
    model: Straightening,
    parts: Iterable[nn.Module],
    images: Tensor,
    labels: Tensor,
    *,
    steps: int,
    rate: float,
) -> None:
    """Train some parts of a network by Adam, with a rate that falls to zero; others stay."""
    model.eval().requires_grad_(False)
    parameters = []
    for part in parts:
        part.train().requires_grad_(True)
        parameters += list(part.parameters())
    optimizer = torch.optim.Adam(parameters, rate, amsgrad=True)
    generator = torch.Generator().manual_seed(_SEED)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        rows = torch.randint(len(images), (32,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def trained(name: str, way: str, steps: int, count: int) -> Straightening:
    """Train a network one way or the other; ``steps`` are those in which transformers learn."""
    torch.manual_seed(_SEED)
    model = build_network(name)
    assert isinstance(model, Straightening)
    turned = images_of(count, Spread(MAX_ROTATION, 0), "train")
    if way == "together":
        learn(model, [model], *turned, steps=steps, rate=2e-3)
        return model
    upright = images_of(count, NONE, "train")
    learn(model, [model.classifier], *upright, steps=min(300, steps), rate=2e-3)
    learn(model, [model.transformers], *turned, steps=steps, rate=3e-3)
    return model


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=["stn10x0.25", "etn10x0.25"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--test-images", type=int, default=400)
    options = parser.parse_args(argv)
    twins = twins_of(options.test_images)
    table = Table(title=f"Median remaining angle, turned by up to {MAX_ROTATION:g} degrees")
    for heading in ("network", "trained", "before", "after", "accuracy %", "seconds"):
        table.add_column(heading, justify="left" if heading in ("network", "trained") else "right")
    for name in options.networks:
        start = build_network(name)
        assert isinstance(start, Straightening)
        before = measure(start, twins).remaining_degrees
        for way in options.ways:
            began = time.perf_counter()
            after = measure(trained(name, way, options.steps, options.images), twins)
            angles = (f"{before:.1f}°", f"{after.remaining_degrees:.1f}°")
            seconds = f"{time.perf_counter() - began:.0f}"
            row = (name, way, *angles, f"{100 * after.accuracy:.1f}", seconds)
            print(*row, flush=True)
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
