"""What evaluation and training at 224 px cost on a GPU beyond the passes of the network.

    python benchmarks/gpu_photographs.py [--json FILE]          one GPU, some minutes
    python benchmarks/gpu_photographs.py --tiny --device cpu    some seconds, to see that it works

ResNet-50, EfficientNet-Lite0 and ViT-B/16 with random weights: torchvision's where it is there, or
the same made by hand. Nothing fools them, so that every pose of a grid is asked for; images come as
uint8 from the host. Against it stand as many plain passes over ready-made images, in batches of the
same sizes, dtype and layout, in turns. "every pose" finds the worst poses, "accuracy" says only who
is fooled. A training step of KL(rob, Wo-4) in bfloat16 stands against its own passes by hand, also
with the search recorded as a CUDA graph (`Recorded`), and also of a ResNet-32 on images of 32 px.

Networks that PyTorch compiled stand against passes of the same compiled networks; what compilation
gives is seen in passes a second, and in milliseconds, beside the way above. "first" is the first
evaluation of each kind, which waits for the compiler.

Hours are those of 50,000 images that nothing fools, the most that it can take, at the speed that
was measured under the same attack: of a grid with fewer poses, and of a refining search of 200.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from photograph_networks import Tiny, efficientnet_lite0, resnet50, vit_b16
from timing import Counted, in_a_row, interleave, machine, print_table, seconds_of, write_json
from torch import Tensor, nn

from upright import RegularizedLoss, Space, evaluate, parse_attack
from upright.models import Compiled, Recorded, build_network, settle_compiler
from upright.modes import evaluation_mode

SPACE = Space.of("shift(10%) rotate(30)")
TARGET = 1.05
IMAGENET = 50_000
STEPS = 5
"""Of training that are timed in a row: a loop does not wait for the GPU between two of them."""
STEP_WAYS = ("plain", "recorded", "compiled", "compiled, recorded")
"""A network as it is or compiled; and its search as it is or recorded."""
STEP = "A step of KL(rob, Wo-4) in bfloat16"
SMALL = "ResNet-32"
ATTACKS = {"grid-775": None, "wo-10": "wo-10", "refine-1000": "refine-200"}
"""Whose hours are told, and by whose speed; None for the grid's."""


@dataclass(frozen=True)
class Way:
    """In which numbers a network computes, how its weights lie, and whether it is compiled."""

    name: str
    dtype: torch.dtype
    channels_last: bool
    compile: bool = False

    def network(self, make: Callable[[], nn.Module], options: argparse.Namespace) -> nn.Module:
        network = make().to(options.device, self.dtype).eval().requires_grad_(False)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        network.to(memory_format=layout)  # type: ignore[call-overload]
        _make_sure_of_the_first_class(network)
        return Compiled(network, batch_size=options.batch_size) if self.compile else network

    def shown(self, images: Tensor) -> Tensor:
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return images.to(self.dtype).contiguous(memory_format=layout)


WAYS = (
    Way("TF32", torch.float32, channels_last=False),
    Way("float16", torch.float16, channels_last=False),
    Way("float16 NHWC", torch.float16, channels_last=True),
    Way("float16 NHWC compiled", torch.float16, channels_last=True, compile=True),
)


@dataclass(frozen=True)
class EvaluationCost:
    network: str
    way: str
    asked: str
    """For every pose, or for accuracy alone."""
    batch: int
    """The largest that was asked for."""
    passes: int
    first: float
    """Seconds of the first time, which waits for a compiler if there is one."""
    seconds: float
    plain: float
    ratio: float
    around: float
    """Seconds of the evaluation with a network that does nothing."""
    passes_a_second: float
    hours: dict[str, float]
    """Of all of ImageNet's validation images, by attack; of accuracy alone, as one would ask."""


@dataclass(frozen=True)
class StepCost:
    network: str
    way: str
    """One of ``STEP_WAYS``."""
    side: int
    images: int
    first: float
    """Seconds of the first steps."""
    milliseconds: float
    by_hand: float
    ratio: float


def _make_sure_of_the_first_class(network: nn.Module) -> None:
    """Let a network answer with class 0, whatever it sees: no pose fools it then."""
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.bias[0] += 1e4


def evaluation_cost(
    name: str,
    way: Way,
    network: nn.Module,
    images: Tensor,
    options: argparse.Namespace,
    *,
    all_: bool,
) -> EvaluationCost:
    """Time an evaluation and, in turns with it, its passes alone."""
    labels = torch.zeros(len(images), dtype=torch.long)

    def search(model: nn.Module, attack: str = options.attack) -> None:
        evaluate(
            model,
            (images, labels),
            attacks=[attack],
            space=SPACE,
            only_accuracy=not all_,
            batch_size=options.batch_size,
            device=options.device,
        )

    def speed_of(attack: str | None) -> float:
        """Passes a second under an attack, the first and the natural ones left out."""
        if attack is None:
            return sum(sizes) / timings.median("search")
        search(network, attack)
        taken = interleave(options.rounds, {attack: lambda: search(network, attack)})
        return len(images) * parse_attack(attack).passes_per_image / taken.median(attack)

    nothing = Counted(_first_class)
    search(nothing)
    sizes = nothing.take()
    around = seconds_of(lambda: search(nothing))
    one = images[:1].float() / 255
    ready = way.shown(one.repeat(max(sizes), 1, 1, 1).to(options.device))

    def plain() -> None:
        for size in sizes:
            network(ready[:size])

    with torch.no_grad():
        first = seconds_of(lambda: search(network))  # the first call of anything is slow
        plain()
        timings = interleave(options.rounds, {"search": lambda: search(network), "plain": plain})
    return EvaluationCost(
        network=name,
        way=way.name,
        asked="every pose" if all_ else "accuracy",
        batch=max(sizes),
        passes=sum(sizes),
        first=first,
        seconds=timings.median("search"),
        plain=timings.median("plain"),
        ratio=timings.ratio("search", "plain"),
        around=around,
        passes_a_second=speed_of(None),
        hours={}
        if all_
        else {attack: _hours(attack, speed_of(other)) for attack, other in ATTACKS.items()},
    )


def _first_class(images: Tensor) -> Tensor:
    logits = images.new_zeros(len(images), 1000, dtype=torch.float32)
    logits[:, 0] = 9.0
    return logits


def _hours(attack: str, passes_a_second: float) -> float:
    return IMAGENET * (1 + parse_attack(attack).passes_per_image) / passes_a_second / 3600


def step_cost(
    name: str, way: str, inside: nn.Module, options: argparse.Namespace, side: int
) -> StepCost:
    """Time a step of KL(rob, Wo-4) in bfloat16, and its passes by hand, in turns."""
    compiled, recorded = "compiled" in way, "recorded" in way
    network = cast(nn.Module, torch.compile(inside, dynamic=False)) if compiled else inside
    search_model = Recorded(network) if recorded else network
    device, tries, count = options.device, 4, options.train_images
    images, labels = torch.rand(count, 3, side, side, device=device), torch.arange(count) % 10
    labels = labels.to(device)
    loss = RegularizedLoss(f"KL(rob, Wo-{tries})", SPACE)
    # A rate of 0: no figure depends on how training went.
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0, momentum=0.9)
    searched, trained = images.repeat(tries + 1, 1, 1, 1), images.repeat(2, 1, 1, 1)

    def update(value: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()

    def ours() -> None:
        network.train()
        with _bfloat16(device):
            value = loss(network, images, labels, search_model=search_model).total
        update(value)

    def by_hand() -> None:
        network.train()
        with _bfloat16(device):
            with torch.no_grad(), evaluation_mode(network):
                network(searched)
            value = F.cross_entropy(network(trained).float(), labels.repeat(2))
        update(value)

    jobs = {"ours": in_a_row(ours, STEPS), "by hand": in_a_row(by_hand, STEPS)}
    first, _ = (seconds_of(job) for job in jobs.values())
    timings = interleave(2 * options.rounds, jobs)
    return StepCost(
        network=name,
        way=way,
        side=side,
        images=count,
        first=first,
        milliseconds=1000 * timings.median("ours") / STEPS,
        by_hand=1000 * timings.median("by hand") / STEPS,
        ratio=timings.ratio("ours", "by hand"),
    )


def _bfloat16(device: str) -> contextlib.AbstractContextManager[object]:
    return torch.autocast(device, torch.bfloat16)


def networks(*, tiny: bool) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """Give networks by name, torchvision's where it has them."""
    if tiny:
        yield "tiny", Tiny
        return
    try:
        from torchvision import models  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        yield "ResNet-50", resnet50
        yield "EfficientNet-Lite0", efficientnet_lite0
        yield "ViT-B/16", vit_b16
    else:
        yield "ResNet-50", models.resnet50
        yield "EfficientNet-Lite0", efficientnet_lite0
        yield "ViT-B/16", models.vit_b_16


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    torch.manual_seed(0)
    settle_compiler()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    side = 32 if options.tiny else 224
    if options.tiny:
        options.attack, options.images, options.train_images, options.rounds = "grid-1x1x3", 4, 2, 1
        options.batch_size = options.batch_size or 8  # which so few images fill
    figures = Figures(f"{options.images} images, {options.attack}, {side} px", options)
    for name, make in networks(tiny=options.tiny):
        if not options.networks or name in options.networks:
            figures.add_evaluations(name, make, side)
            figures.add_steps(name, make, side)
    if not options.tiny and SMALL in (options.networks or [SMALL]):
        # Small images, as many users have: there launches take longer than what is launched.
        figures.add_steps(SMALL, lambda: build_network("resnet32"), 32)
    figures.show()


@dataclass
class Figures:
    """All that was measured; after each figure it is written, so that nothing is lost."""

    title: str
    options: argparse.Namespace
    evaluations: list[EvaluationCost] = field(default_factory=list)
    steps: list[StepCost] = field(default_factory=list)

    def add_evaluations(self, name: str, make: Callable[[], nn.Module], side: int) -> None:
        shape = (self.options.images, 3, side, side)
        images = torch.randint(256, shape, dtype=torch.uint8)
        for way in (way for way in WAYS if way.name in self.options.ways):
            network = way.network(make, self.options)
            for all_ in (True, False):
                found = evaluation_cost(name, way, network, images, self.options, all_=all_)
                self.evaluations.append(found)
                _show_evaluations([found], self.title)
                self.write()

    def add_steps(self, name: str, make: Callable[[], nn.Module], side: int) -> None:
        for way in self.options.step_ways:
            trained = make().to(self.options.device)
            trained.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.steps.append(step_cost(name, way, trained, self.options, side))
            _show_steps(self.steps[-1:], STEP)
            self.write()

    def write(self) -> None:
        told: dict[str, object] = {"what": self.title, "on": machine(self.options.device)}
        told["evaluations"] = [asdict(each) for each in self.evaluations]
        told["steps"] = [asdict(each) for each in self.steps]
        write_json(self.options.json, told)

    def show(self) -> None:
        on = machine(self.options.device)
        _show_evaluations(self.evaluations, f"{self.title}, {on}")
        _show_steps(self.steps, f"{STEP}, {on}")


def _show_evaluations(costs: Sequence[EvaluationCost], title: str) -> None:
    heads = ("network", "way", "asked", "batch", "first", "s", "plain", "around", "ratio")
    print_table(
        f"{title}; hours for {IMAGENET:,} images",
        (*heads, f"≤{TARGET}", "passes/s", "775 h", "wo-10 h", "refine h"),
        [
            (
                *(each.network, each.way, each.asked, str(each.batch)),
                *(f"{each.first:.1f}", f"{each.seconds:.3f}", f"{each.plain:.3f}"),
                f"{each.around:.3f}",
                *(f"{each.ratio:.3f}", "yes" if each.ratio <= TARGET else "NO"),
                f"{each.passes_a_second:,.0f}",
                *(f"{each.hours[attack]:.2f}" if each.hours else "" for attack in ATTACKS),
            )
            for each in costs
        ],
    )


def _show_steps(costs: Sequence[StepCost], title: str) -> None:
    print_table(
        title,
        ("network", "way", "px", "images", "first, s", "ms", "by hand, ms", "ratio", f"≤ {TARGET}"),
        [
            (
                *(each.network, each.way, str(each.side), str(each.images)),
                *(
                    f"{each.first:.1f}",
                    f"{each.milliseconds:.1f}",
                    f"{each.by_hand:.1f}",
                    f"{each.ratio:.3f}",
                ),
                "yes" if each.ratio <= TARGET else "NO",
            )
            for each in costs
        ],
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time 224 px on a GPU against bare passes.")
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cuda")
    add("--networks", nargs="+", help="these alone, as the table calls them")
    names = [way.name for way in WAYS]
    add("--ways", nargs="*", choices=names, default=names, help="none: no evaluations")
    add("--step-ways", nargs="*", choices=STEP_WAYS, default=STEP_WAYS, help="none: no steps")
    add("--images", type=int, default=64)
    add("--attack", default="grid-5x5x7", help="a grid, all poses of which are asked for")
    add("--batch-size", type=int, help="as the evaluation chooses, unless told")
    add("--train-images", type=int, default=64, help="unique images of a training step")
    add("--rounds", type=int, default=3, help="of interleaved timings")
    add("--tiny", action="store_true", help="a small network on small images")
    add("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
