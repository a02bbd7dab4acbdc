"""Seconds a training step, against the same passes made by hand with nothing around them.

    python benchmarks/train.py [--repeats 7] [--json FILE]

By hand: the same network, in the same mode, sees as many images in as many batches, all of them
ready-made; the optimiser steps. What is left out is all that the project does around it: drawing,
augmenting and warping images, choosing among the candidates, the penalty, and keeping count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import interleave, machine, print_table, write_json
from torch import Tensor, nn

from upright.data import LabelledImages, load_data
from upright.objective import parse_objective
from upright.train import Recipe
from upright.train.learner import Learner

OBJECTIVES = ("std*", "AT(rob, Wo-10)", "KL(rob, Wo-10)", "KL-C(mix, S-PGD)")
TARGET = 1.10


@dataclass(frozen=True)
class Pass:
    """One call of the network."""

    images: int
    training: bool
    """In training mode: the loss of such a pass is taken back to the weights."""
    gradient: bool
    """With a gradient; in evaluation mode, that of the images."""

    def __str__(self) -> str:
        way = "train" if self.training else ("ascent" if self.gradient else "search")
        return f"{way} {self.images}"


@dataclass(frozen=True)
class Row:
    objective: str
    passes: str
    seconds: float
    by_hand: float
    ratio: float


def passes_of_a_step(learner: Learner) -> list[Pass]:
    """Take one step and watch how the network is called."""
    passes: list[Pass] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        passes.append(Pass(len(inputs[0]), module.training, torch.is_grad_enabled()))

    handle = learner.model.register_forward_pre_hook(note)
    learner.step(0)
    handle.remove()
    return passes


def by_hand(learner: Learner, passes: Sequence[Pass], data: LabelledImages) -> Callable[[], None]:
    """Prepare the same passes over images that are ready."""
    inputs = []
    for one in passes:
        rows = torch.arange(one.images) % len(data)
        images = data.images[rows].float() / 255
        inputs.append((images.contiguous(memory_format=torch.channels_last), data.labels[rows]))

    def step() -> None:
        for one, (images, labels) in zip(passes, inputs, strict=True):
            _PASSES[one.training, one.gradient](learner, images, labels)

    return step


def _search(learner: Learner, images: Tensor, _labels: Tensor) -> None:
    learner.model.eval()
    with torch.no_grad():
        learner.model(images)


def _ascent(learner: Learner, images: Tensor, labels: Tensor) -> None:
    learner.model.eval()
    images = images.detach().requires_grad_()
    torch.autograd.grad(F.cross_entropy(learner.model(images), labels), images)


def _train(learner: Learner, images: Tensor, labels: Tensor) -> None:
    learner.model.train()
    loss = F.cross_entropy(learner.model(images), labels)
    learner.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    learner.optimizer.step()


_PASSES = {(False, False): _search, (False, True): _ascent, (True, True): _train}


def measure(objective: str, model: str, batch: int, data: LabelledImages, repeats: int) -> Row:
    """Time a step of the trainer and the same passes by hand, in turns."""
    # A rate of 0: the weights of both stay alike, and no figure depends on how a run went.
    recipe = Recipe(
        objective=parse_objective(objective),
        data="glyphs",
        model=model,
        batch=batch,
        learning_rate=0.0,
    )
    learner = Learner(recipe, data, torch.device("cpu"))
    passes = passes_of_a_step(learner)
    bare = Learner(recipe, data, torch.device("cpu"))
    hand = by_hand(bare, passes, data)
    hand()  # once, as the learner did: the first call of anything is slow

    def step() -> None:
        learner.step(1)
        learner.is_sane()

    timings = interleave(repeats, {"step": step, "hand": hand})
    return Row(
        objective,
        _summary(passes),
        timings.median("step"),
        timings.median("hand"),
        timings.ratio("step", "hand"),
    )


def _summary(passes: Sequence[Pass]) -> str:
    counts = {one: passes.count(one) for one in passes}
    return " + ".join(
        f"{count}×({one})" if count > 1 else str(one) for one, count in counts.items()
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    torch.manual_seed(0)
    data = load_data("glyphs", split="train", limit=4 * options.batch)
    rows = [
        measure(objective, options.model, options.batch, data, options.repeats)
        for objective in options.objectives
    ]
    print_table(
        f"A training step: {options.model}, {options.batch} images, {machine('cpu')}",
        ("objective", "passes (images each)", "seconds", "by hand", "ratio", f"≤ {TARGET:.2f}"),
        [
            (
                row.objective,
                row.passes,
                f"{row.seconds:.3f}",
                f"{row.by_hand:.3f}",
                f"{row.ratio:.3f}",
                "yes" if row.ratio <= TARGET else "NO",
            )
            for row in rows
        ],
    )
    write_json(options.json, {"machine": machine("cpu"), "rows": [asdict(row) for row in rows]})


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time training steps against bare passes.")
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES)
    parser.add_argument("--model", default="resnet32", help="a network by its name")
    parser.add_argument("--batch", type=int, default=64, help="unique images a step")
    parser.add_argument("--repeats", type=int, default=7, help="steps that are timed")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


if __name__ == "__main__":
    main()
