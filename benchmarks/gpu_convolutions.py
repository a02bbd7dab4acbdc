"""How long cuDNN's convolutions take in bfloat16, by their width: those of group networks, padded.

    python benchmarks/gpu_convolutions.py [--json FILE]         one GPU, some seconds
    python benchmarks/gpu_convolutions.py --tiny --device cpu   to see that it works

A layer of gresnet44 is an ordinary convolution of 88, 184 or 360 channels at 32, 16 or 8 pixels.
Its times stand beside those of a few channels more, in channels last, in microseconds: forward, by
the input and by the weight. The floor is its arithmetic at the rate that a large product reaches.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from gpu_networks import TFLOPS
from timing import in_a_row, interleave, machine, print_table, write_json
from torch import Tensor

WIDTHS = {32: (88, 96, 128), 16: (184, 192, 256), 8: (360, 384)}
"""Channels, by the size of images in pixels."""
IMAGES = (64, 128, 640)
"""Of a plain step, of one with a penalty, and of a search of ten draws."""


@dataclass(frozen=True)
class Layer:
    """What one convolution takes, in microseconds."""

    size: int
    images: int
    channels: int
    floor: float
    forward: float
    by_input: float
    by_weight: float


def measure(size: int, images: int, channels: int, options: argparse.Namespace) -> Layer:
    """Time a layer's three parts in turns."""

    def made(*shape: int) -> Tensor:
        tensor = torch.randn(shape, device=options.device, dtype=torch.bfloat16)
        return tensor.to(memory_format=torch.channels_last)

    features, weight = made(images, channels, size, size), made(channels, channels, 3, 3)
    gradient = made(images, channels, size, size)

    def backward(*wanted: bool) -> object:
        one, none = [1, 1], [0, 0]
        return torch.ops.aten.convolution_backward(
            gradient, features, weight, None, one, one, one, False, none, 1, wanted
        )

    parts: dict[str, Callable[[], object]] = {
        "forward": lambda: F.conv2d(features, weight, padding=1),
        "by_input": lambda: backward(True, False, False),
        "by_weight": lambda: backward(False, True, False),
    }
    jobs = {name: in_a_row(part, options.repeats) for name, part in parts.items()}
    for job in jobs.values():
        job()
    timings = interleave(3, jobs)
    taken = {name: 1e6 * timings.median(name) / options.repeats for name in parts}
    operations = 2 * images * size**2 * channels**2 * 9
    return Layer(size, images, channels, operations / TFLOPS / 1e6, **taken)


def layers(options: argparse.Namespace) -> Iterator[Layer]:
    for size, widths in WIDTHS.items():
        for images in (2,) if options.tiny else IMAGES:
            for channels in widths:
                yield measure(size, images, channels, options)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cuda")
    add("--repeats", type=int, default=30)
    add("--tiny", action="store_true", help="few images, once")
    add("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    options.repeats = 1 if options.tiny else options.repeats
    torch.backends.cudnn.benchmark = True
    found = list(layers(options))
    write_json(
        options.json, {"machine": machine(options.device), "layers": [asdict(x) for x in found]}
    )
    print_table(
        f"Convolutions of 3 x 3 in bfloat16, microseconds, {machine(options.device)}",
        ("pixels", "images", "channels", "floor", "forward", "by input", "by weight"),
        [
            (
                *(str(count) for count in (each.size, each.images, each.channels)),
                *(f"{each.floor:.1f}", f"{each.forward:.1f}"),
                *(f"{each.by_input:.1f}", f"{each.by_weight:.1f}"),
            )
            for each in found
        ],
    )


if __name__ == "__main__":
    main()
