"""How a network of timm stands up to small motions, measured on a folder of images.

    pip install -c constraints.txt '.[timm]'
    python examples/timm_folder.py imagenet/val --model resnet18

The folder has a sub-folder for each class, of all of ImageNet's or of some, named by its WordNet id
or a word for it. Images are resized and cropped as the network was made for. Translations go up to
a tenth of the image, rotations up to 30 degrees. Prints how many images and classes there are, then
one line with the accuracy on the images as they are, and one with what each attack leaves of it.
"""

from __future__ import annotations

from pathlib import Path

import torch
import tyro
from tyro.conf import Positional

from upright import evaluate
from upright.data import ClassNames, load_data
from upright.sources import load_pretrained


def main(
    folder: Positional[Path],
    *,
    model: str = "resnet18",
    weights: Path | None = None,
    limit: int = 100,
    attacks: tuple[str, ...] = ("wo-10", "grid-5x5x7"),
) -> None:
    """Evaluate a network of timm.

    Args:
        folder: one sub-folder for each class.
        model: a name of timm.
        weights: a file of them; without, the published ones, which are fetched once.
        limit: the first so many images, from each class in turn.
        attacks: what to measure with.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = f"timm:{model}" if weights is None else f"timm:{model}@{weights}"
    found = load_pretrained(name, device=device)
    usual = found.preprocess
    data = load_data(
        f"folder:{folder}", resize=usual.resize, center_crop=usual.center_crop, limit=limit
    )
    result = evaluate(
        found.model(device=device),
        ClassNames(found.classes).label(data),
        attacks=attacks,
        space="shift(10%) rotate(30)",
        only_accuracy=True,
        device=device,
    )
    print(f"{model} on {len(data)} images of {len(data.classes)} classes")
    print(f"natural     {result.natural_accuracy:.1%}")
    for attack, under in result.attacks.items():
        print(f"{attack:11} {under.accuracy:.1%}")


if __name__ == "__main__":
    tyro.cli(main)
