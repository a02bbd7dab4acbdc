"""What a group convolution costs beside an ordinary one, and which networks turn with the image.

    python benchmarks/group_conv.py [--repeats 9] [--depth 44] [--json FILE]

Costs are those of the three shapes of layers in gresnet44, against an ordinary convolution with as
many filters of the same shape, in time of one CPU core. Errors are those of untrained networks in
float64, for an image of noise which their norms have seen: the largest change of a logit and, where
the head does not matter, the largest difference between features of the moved image and moved
features, over all turns and mirror images.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import Timings, machine, print_table, write_json
from torch import Tensor

from upright.models import build_network
from upright.models.gresnet import GResNet
from upright.models.group_conv import P4M, GroupBatchNorm, GroupConv
from upright.testing import equivariance_error, invariance_error, quarter_turns

LAYERS = ((11, 32), (23, 16), (45, 8))
"""Channels on each plane, and the size of images in pixels."""
VARIANTS = ("", "-invariant", "-pool", "-pool-invariant")
SIZES = (32, 33)


@dataclass(frozen=True)
class Cost:
    channels: int
    size: int
    training_ms: float
    """Forward and backward pass of a group convolution."""
    training_ratio: float
    """To that of an ordinary convolution of the same shape."""
    evaluation_ms: float
    evaluation_ratio: float
    expansion_ms: float
    """Of the expansion and its gradient, which training_ms includes."""


@dataclass(frozen=True)
class Error:
    network: str
    size: int
    features: float | None
    """None for a network that differs from another in its head alone."""
    logits: float


def in_turns(repeats: int, jobs: Mapping[str, Callable[[], object]]) -> Timings:
    """Time jobs in turns, by the time that the core spent on them, whoever else it worked for."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            began = time.process_time()
            job()
            seconds[name].append(time.process_time() - began)
    return Timings(seconds)


def cost(channels: int, size: int, batch: int, repeats: int) -> Cost:
    """Time a layer and its ordinary counterpart in turns."""
    conv = GroupConv(P4M, channels, channels, 3)
    shape = (batch, P4M.planes * channels, size, size)
    x = torch.rand(shape).to(memory_format=torch.channels_last)
    filters = conv.filters().detach().clone(memory_format=torch.preserve_format)
    plain = filters.requires_grad_()
    bias = torch.zeros(len(plain), requires_grad=True)

    def ordinary() -> Tensor:
        return F.conv2d(x, plain, bias, padding=1)

    def expansion() -> None:
        torch.autograd.grad(conv.filters(), conv.weight, filters.detach())

    jobs: dict[str, Callable[[], object]] = {
        "group": lambda: conv(x).sum().backward(),
        "plain": lambda: ordinary().sum().backward(),
        "expansion": expansion,
    }
    training = in_turns(repeats, jobs)
    conv.eval()
    with torch.no_grad():
        conv(x)
        evaluation = in_turns(repeats, {"group": lambda: conv(x), "plain": ordinary})
    return Cost(
        channels,
        size,
        1000 * training.median("group"),
        training.ratio("group", "plain"),
        1000 * evaluation.median("group"),
        evaluation.ratio("group", "plain"),
        1000 * training.median("expansion"),
    )


def error(network: str, size: int) -> Error:
    """Measure how far an untrained network is from turning with the image."""
    torch.manual_seed(0)
    model = build_network(network).double()
    assert isinstance(model, GResNet)
    for part in model.modules():
        if isinstance(part, GroupBatchNorm):
            part.momentum = 1.0  # takes over the statistics of one batch
    image = torch.rand(1, 3, size, size, dtype=torch.float64)
    with torch.no_grad():
        model(image)
    model.eval()
    with_planes = quarter_turns(mirrors=True, planes=True)
    return Error(
        network,
        size,
        None if "invariant" in network else equivariance_error(model.features, image, with_planes),
        invariance_error(model, image, quarter_turns(mirrors=True)),
    )


def show_costs(costs: Sequence[Cost], batch: int) -> None:
    print_table(
        f"A 3x3 group convolution of {batch} images, {machine('cpu')}",
        ("channels x 8", "size", "train, ms", "ratio", "expansion, ms", "evaluate, ms", "ratio"),
        [
            (
                f"{one.channels} x 8",
                f"{one.size}",
                f"{one.training_ms:.1f}",
                f"{one.training_ratio:.3f}",
                f"{one.expansion_ms:.2f}",
                f"{one.evaluation_ms:.1f}",
                f"{one.evaluation_ratio:.3f}",
            )
            for one in costs
        ],
    )


def show_errors(errors: Sequence[Error]) -> None:
    print_table(
        "Largest difference under all turns and mirror images, float64",
        ("network", "size", "features", "logits"),
        [
            (
                one.network,
                f"{one.size}",
                "" if one.features is None else f"{one.features:.2g}",
                f"{one.logits:.2g}",
            )
            for one in errors
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    costs = [cost(*layer, options.batch, options.repeats) for layer in LAYERS]
    show_costs(costs, options.batch)
    errors = [
        error(f"gresnet{options.depth}{variant}", size) for variant in VARIANTS for size in SIZES
    ]
    show_errors(errors)
    write_json(
        options.json,
        {
            "machine": machine("cpu"),
            "costs": [asdict(one) for one in costs],
            "errors": [asdict(one) for one in errors],
        },
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Cost and errors of group convolutions.")
    parser.add_argument("--batch", type=int, default=64, help="images")
    parser.add_argument("--repeats", type=int, default=9, help="times that each layer is timed")
    parser.add_argument("--depth", default="44", help="depth and width of the network: 44, 8x0.3")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
