"""What an evaluation at 224 px costs on a CPU beyond its forward passes, in torch and in ONNX.

    python benchmarks/cpu_photographs.py [--json FILE]      about ten minutes
    python benchmarks/cpu_photographs.py --tiny             some seconds, to see that it works

All poses of a grid on a few images, against as many plain passes over ready-made images in batches
of the same sizes, in turns; on one thread and on two. Wall time is what a user waits for. CPU time
does not count what other programs took meanwhile, but counts threads that wait by spinning. Passes
of a network that PyTorch compiled stand against themselves, too: what compilation gives is seen in
the seconds, beside those of torch, and "first" is what it takes to begin with.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from photograph_networks import Tiny, efficientnet_lite0, mobilenet, resnet50
from timing import Counted, machine, print_table, write_json
from torch import Tensor, nn

from upright import Space, evaluate
from upright.models import Compiled, lay_channels_last
from upright.sources import load_model
from upright.warp import warp, warp_all

SIDE = 224
SPACE = Space.of("shift(10%) rotate(30)")
TARGET = 1.05
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MobileNet-v1": mobilenet,
    "EfficientNet-Lite0": efficientnet_lite0,
    "ResNet-50": resnet50,
    "tiny": Tiny,
}


RUNTIMES = ("torch", "channels-last", "compiled", "onnx")


@dataclass(frozen=True)
class Cost:
    """Seconds of an evaluation and of its passes alone: medians over rounds."""

    network: str
    runtime: str
    threads: int
    passes: int
    search: float
    plain: float
    wall_ratio: float
    cpu_ratio: float
    around: float
    """Of the evaluation with a network that does nothing."""
    first: float
    """Of the first evaluation, which waits for a compiler if there is one."""


@dataclass(frozen=True)
class _Took:
    wall: float
    cpu: float


def took(job: Callable[[], object]) -> _Took:
    """Run a job once."""
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return _Took(time.perf_counter() - wall, time.process_time() - cpu)


def runtimes(network: nn.Module, side: int) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Give the network as it is, laid out otherwise, compiled, and as a file of onnxruntime."""
    yield "torch", network
    laid = copy.deepcopy(network)
    lay_channels_last(laid)
    yield "channels-last", laid
    yield "compiled", Compiled(network)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        images = torch.rand(2, 3, side, side)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter that needs no further package is old
            torch.onnx.export(
                network,
                (images,),
                str(path),
                dynamo=False,
                input_names=["images"],
                output_names=["logits"],
                dynamic_axes={"images": {0: "n"}, "logits": {0: "n"}},
            )
        yield "onnx", load_model(str(path), device=torch.device("cpu"))


def cost(
    model: Callable[[Tensor], Tensor], runtime: str, images: Tensor, attack: str, rounds: int
) -> dict[str, float]:
    labels = torch.zeros(len(images), dtype=torch.long)

    def search(model: Callable[[Tensor], Tensor]) -> None:
        evaluate(model, (images, labels), attacks=[attack], space=SPACE, device="cpu")

    nothing = Counted(lambda images: images.new_zeros(len(images), 1000))
    search(nothing)
    sizes = nothing.take()
    around = statistics.median(took(lambda: search(nothing)).wall for _ in range(rounds))
    box = SPACE.in_pixels(*images.shape[-2:])
    poses = box.sample(max(sizes), generator=torch.Generator().manual_seed(0))
    ready = warp_all(images[:1], poses).flatten(0, 1)
    if runtime == "channels-last":
        ready = ready.contiguous(memory_format=torch.channels_last)

    def plain() -> None:
        for size in sizes:
            model(ready[:size])

    with torch.no_grad():
        first = took(lambda: search(model)).wall
        model(ready)
        pairs = [_in_turns(lambda: search(model), plain, number) for number in range(rounds)]
    return {
        "passes": sum(sizes),
        "search": statistics.median(ours.wall for ours, _ in pairs),
        "plain": statistics.median(theirs.wall for _, theirs in pairs),
        "wall_ratio": statistics.median(ours.wall / theirs.wall for ours, theirs in pairs),
        "cpu_ratio": statistics.median(ours.cpu / theirs.cpu for ours, theirs in pairs),
        "around": around,
        "first": first,
    }


def _in_turns(
    ours: Callable[[], object], theirs: Callable[[], object], number: int
) -> tuple[_Took, _Took]:
    """Time two jobs, each first in every other round."""
    if number % 2 == 0:
        return took(ours), took(theirs)
    later = took(theirs)
    return took(ours), later


def resampling(side: int, images: int = 8, repeats: int = 30) -> dict[str, float]:
    """Milliseconds of CPU time for each moved image: ours, and the sampling alone."""
    pictures = torch.rand(images, 3, side, side)
    box = SPACE.in_pixels(side, side)
    generator = torch.Generator().manual_seed(0)
    own, shared = box.sample(images, generator=generator), box.sample(1, generator=generator)
    maps = torch.tensor([[0.9, 0.1, 0.0], [-0.1, 0.9, 0.0]]).repeat(images, 1, 1)
    grid = F.affine_grid(maps, [images, 3, side, side], align_corners=False)
    jobs: dict[str, Callable[[], object]] = {
        "warp, a pose for each image": lambda: warp(pictures, own),
        "warp, one pose for all": lambda: warp(pictures, shared),
        "grid_sample": lambda: F.grid_sample(pictures, grid, align_corners=False),
    }
    with torch.no_grad():
        rounds = [{name: took(job).cpu for name, job in jobs.items()} for _ in range(repeats)]
    return {name: 1000 * statistics.median(each[name] for each in rounds) / images for name in jobs}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    torch.manual_seed(0)
    side, attack = (32, "grid-1x1x3") if options.tiny else (SIDE, options.attack)
    names = ["tiny"] if options.tiny else options.networks
    costs, moving = list[Cost](), dict[str, dict[str, float]]()
    for threads in options.threads:
        torch.set_num_threads(threads)
        moving[str(threads)] = resampling(side)
        for name in names:
            images = torch.rand(1 if name == "ResNet-50" else 2, 3, side, side)
            for runtime, model in runtimes(NETWORKS[name]().eval(), side):
                if runtime not in options.runtimes:
                    continue
                found = cost(model, runtime, images, attack, options.rounds)
                costs.append(Cost(name, runtime, threads, **found))  # type: ignore[arg-type]
                _show_costs(costs[-1:], attack)
    title = machine("cpu")
    _show_costs(costs, f"{attack}, {side} px, {title}")
    rows = [
        (name, *(f"{moving[str(threads)][name]:.2f}" for threads in options.threads))
        for name in next(iter(moving.values()))
    ]
    heads = [f"{threads} threads" for threads in options.threads]
    print_table("CPU time for each moved image, ms", ("what", *heads), rows)
    figures: dict[str, object] = {
        "what": title,
        "costs": [asdict(each) for each in costs],
        "resampling_ms": moving,
    }
    write_json(options.json, figures)


def _show_costs(costs: Sequence[Cost], title: str) -> None:
    print_table(
        title,
        (
            *("network", "runtime", "threads", "passes", "search, s", "plain, s"),
            *("wall ratio", "CPU ratio", "no network, s", "first, s", "at most"),
        ),
        [
            (
                each.network,
                each.runtime,
                str(each.threads),
                str(each.passes),
                f"{each.search:.2f}",
                f"{each.plain:.2f}",
                f"{each.wall_ratio:.3f}",
                f"{each.cpu_ratio:.3f}",
                f"{each.around:.2f}",
                f"{each.first:.1f}",
                f"{TARGET} ({'met' if each.cpu_ratio <= TARGET else 'MISSED'})",
            )
            for each in costs
        ],
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time an evaluation at 224 px against its passes.")
    add = parser.add_argument
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--networks", nargs="+", choices=[*NETWORKS], default=["MobileNet-v1", "ResNet-50"])
    add("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    add("--attack", default="grid-5x5x7", help="a grid, all poses of which are asked for")
    add("--rounds", type=int, default=5, help="of interleaved timings")
    add("--tiny", action="store_true", help="a small network on small images")
    add("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
