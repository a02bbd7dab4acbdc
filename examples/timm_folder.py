"""How a network of timm stands up to small motions, measured on a folder of images.

    pip install -c constraints.txt '.[timm]'
    python examples/timm_folder.py imagenet/val --model resnet18

The folder has a sub-folder for each class, named by its WordNet id as in ImageNet (all 1000 or some
of them), or one for each class of the network in its order. Images are resized and cropped as the
network was made for. Translations go up to a tenth of the image, rotations up to 30 degrees. Prints
how many images and classes there are, then one line with the accuracy on the images as they are,
and one with what each attack leaves of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
import tyro
from timm.data import ImageNetInfo, resolve_model_data_config
from torch import Tensor
from tyro.conf import Positional

from upright import Normalised, evaluate
from upright.data import LabelledImages, load_data
from upright.sources.timm_models import load_timm


def main(
    folder: Positional[Path],
    *,
    model: str = "resnet18",
    pretrained: bool = True,
    limit: int = 100,
    attacks: tuple[str, ...] = ("wo-10", "grid-5x5x7"),
) -> None:
    """Evaluate a network of timm.

    Args:
        folder: one sub-folder for each class.
        model: a name of timm.
        pretrained: load the weights, which are fetched once.
        limit: the first so many images, from each class in turn.
        attacks: what to measure with.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = cast(Normalised, load_timm(model, device=device, pretrained=pretrained))
    inside = cast(Any, network.network)
    settings = resolve_model_data_config(inside)
    size = settings["input_size"][-1]
    resize = round(size / settings["crop_pct"])
    data = load_data(f"folder:{folder}", resize=resize, center_crop=size, limit=limit)
    result = evaluate(
        network,
        (data.images, labels_in_network(data, inside.num_classes)),
        attacks=attacks,
        space="shift(10%) rotate(30)",
        only_accuracy=True,
    )
    print(f"{model} on {len(data)} images of {len(data.classes)} classes")
    print(f"natural     {result.natural_accuracy:.1%}")
    for name, found in result.attacks.items():
        print(f"{name:11} {found.accuracy:.1%}")


def labels_in_network(data: LabelledImages, classes: int) -> Tensor:
    """Give each image the number that its class has in the network."""
    numbers = {name: number for number, name in enumerate(ImageNetInfo().label_names())}
    if classes == len(numbers) and set(data.classes) <= set(numbers):
        return torch.tensor([numbers[name] for name in data.classes])[data.labels]
    if len(data.classes) != classes:
        raise ValueError(
            f"the folder has {len(data.classes)} classes and the network {classes}; name the "
            "sub-folders by WordNet id, such as n01440764, or make one for each class"
        )
    return data.labels


if __name__ == "__main__":
    tyro.cli(main)
