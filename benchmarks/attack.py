"""What a search costs beyond its forward passes, and how other tools compare.

    python benchmarks/attack.py [--json FILE]                   on a CPU, several minutes
    python benchmarks/attack.py --device cuda [--json FILE]     on a GPU, about a minute

First, every pose of grid-775 on a ResNet-32 against as many plain forward passes over ready-made
images, in batches of the same sizes. On a GPU that is all, over 10,000 images in bfloat16.

Then, on a CPU, Foolbox 3.3 and ART 1.20 are asked about a weak and a robust network, on the same
images. They come with ``pip install -c constraints.txt '.[bench]'``; what is missing is left out.
The two networks are trained at the first call, in a few minutes, and kept in ``runs/benchmark``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from timing import Counted, interleave, machine, print_table, seconds_of, write_json
from torch import Tensor, nn

from upright import PAPER, evaluate
from upright.models import FusedResNet, ResNet, build_network, can_fuse
from upright.warp import warp_all

POSES = 775
TARGETS = {"cpu": 1.10, "cuda": 1.15}


@dataclass(frozen=True)
class SearchCost:
    """Seconds of a full search and of the same forward passes with nothing around them."""

    images: int
    passes: int
    search: float
    plain: float
    around: float
    """Of the search with a network that does nothing: all that is not a forward pass."""
    ratio: float

    @property
    def images_a_second(self) -> float:
        return self.images * POSES / self.search


class InFixedBatches(nn.Module):
    """Fills every batch up to one size, since a network is compiled or tuned anew for each."""

    def __init__(self, model: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self.model, self.size = model, size
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        missing = self.size - len(images)
        full = F.pad(images, [0] * 7 + [missing]) if missing else images
        return self.model(full)[: len(images)]


class InHalfPrecision(nn.Module):
    """Runs a network in bfloat16 and channels-last."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16):
            return cast(Tensor, self.model(images)).float()


def network_for(name: str, device: str, forward: str, batch: int) -> nn.Module:
    """Make a network with random weights: what it costs does not depend on what it knows."""
    network = build_network(name).to(device).eval()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if forward == "eager":
        return network if device == "cpu" else InHalfPrecision(network)
    if forward == "compiled":
        return InFixedBatches(torch.compile(InHalfPrecision(network), dynamic=False), batch)
    if not can_fuse(network):
        raise SystemExit("--forward fused needs a GPU, Triton and a ResNet; take another one")
    return InFixedBatches(FusedResNet(cast(ResNet, network), torch.float16).freeze(), batch)


def search_cost(model: nn.Module, images: Tensor, *, batch: int, repeats: int) -> SearchCost:
    """Time a search of all poses and, in turns with it, its forward passes alone."""
    labels = torch.zeros(len(images), dtype=torch.long, device=images.device)

    def search(model: nn.Module) -> None:
        evaluate(model, (images, labels), batch_size=batch, device=images.device)

    nothing = Counted(lambda images: images.new_zeros(len(images), 10))
    search(nothing)
    sizes = nothing.take()
    around = seconds_of(lambda: search(nothing))
    ready = ready_made(images, max(sizes))

    def plain() -> None:
        start = 0
        for size in sizes:
            start = start if start + size <= len(ready) else 0
            model(ready[start : start + size])
            start += size

    with torch.no_grad():
        for size in sorted(set(sizes)):  # the first call of anything is slow
            model(ready[:size])
        timings = interleave(repeats, {"search": lambda: search(model), "plain": plain})
    return SearchCost(
        images=len(images),
        passes=sum(sizes),
        search=timings.median("search"),
        plain=timings.median("plain"),
        around=around,
        ratio=timings.ratio("search", "plain"),
    )


def ready_made(images: Tensor, at_least: int) -> Tensor:
    """Make warped images for plain passes: several batches, so that no cache holds them all."""
    copies = -(-8 * at_least // len(images))
    poses = PAPER.sample(copies, generator=torch.Generator().manual_seed(0))
    return warp_all(images, poses).flatten(0, 1)


def random_images(count: int, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return pixels.to(device).float() / 255


def show_search_cost(cost: SearchCost, title: str, device: str) -> None:
    print_table(
        title,
        (
            "images",
            "passes",
            "search, s",
            "plain, s",
            "no network, s",
            "ratio",
            "at most",
            "images×poses/s",
        ),
        [
            (
                f"{cost.images:,}",
                f"{cost.passes:,}",
                f"{cost.search:.3f}",
                f"{cost.plain:.3f}",
                f"{cost.around:.3f}",
                f"{cost.ratio:.3f}",
                f"{TARGETS[device]:.2f} ({'met' if cost.ratio <= TARGETS[device] else 'MISSED'})",
                f"{cost.images_a_second:,.0f}",
            )
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    torch.manual_seed(0)
    on_gpu = options.device == "cuda"
    batch = options.batch_size or (4096 if on_gpu else 128)
    forward = options.forward or ("fused" if on_gpu else "eager")
    repeats = options.repeats or (1 if on_gpu else 5)
    images = random_images(options.search_images or (10_000 if on_gpu else 8), options.device)
    model = network_for(options.network, options.device, forward, batch)
    cost = search_cost(model, images, batch=batch, repeats=repeats)
    title = f"grid-775 on {options.network} ({forward}), {machine(options.device)}"
    show_search_cost(cost, title, options.device)
    figures: dict[str, object] = {"what": title, "search_cost": asdict(cost)}
    if not on_gpu and options.images:
        figures["tools"] = _compare(options, repeats)
    write_json(options.json, figures)


def _compare(options: argparse.Namespace, repeats: int) -> list[dict[str, object]]:
    from comparison import (
        compare,  # brings data and training along, which a GPU's figure does without
    )

    return compare(
        images=options.images,
        repeats=repeats,
        steps=options.steps,
        runs=options.runs,
        weak=options.weak,
        robust=options.robust,
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time grid-775 against bare passes and others.")
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--repeats", type=int, help="rounds of interleaved timings: 5 on a CPU, 1 on a GPU")
    add("--network", default="resnet32", help="for the search's cost")
    add("--search-images", type=int, help="for the search's cost: 8 on a CPU, 10,000 on a GPU")
    add("--batch-size", type=int, help="128 on a CPU, 4096 on a GPU")
    add("--forward", choices=("eager", "compiled", "fused"), help="fused on a GPU, else eager")
    add("--images", type=int, default=64, help="for the comparison; 0 leaves it out")
    add("--steps", type=int, default=600, help="to train the networks of the comparison")
    add("--weak", type=Path, help="a run directory, instead of the network trained here")
    add("--robust", type=Path, help="likewise")
    add("--runs", type=Path, default=Path("runs/benchmark"), help="where to keep those networks")
    add("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
