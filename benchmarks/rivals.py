"""How Foolbox 3.3 and ART 1.20 are asked for grid-775, and which poses they then really try.

``tests/project/test_benchmarks.py`` holds what is said of them here by experiment.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from upright import Pose, Space

__all__ = [
    "LEGEND",
    "Answer",
    "art_answer",
    "art_attack",
    "art_poses",
    "foolbox_answer",
    "foolbox_poses",
    "is_installed",
]

LEGEND = """\
[1] Foolbox moves images by 31/32 of what it is told (2.906 px for 3), as it measures the image from
    the centres of its border pixels. It translates before it rotates, so that its box of
    translations turns with the image. It asks about every image until the last one is fooled.
[2] ART takes one pose for all images, the one that changes most predictions, not the worst of each.
    With channels first it takes their number for a side of the image: no vertical shifts, 155 poses
    in all, shifts rounded to whole pixels. It shifts, cuts off what left the image, then rotates,
    each by cubic splines. It asks the network about one image at a time."""


@dataclass(frozen=True)
class Answer:
    """What a tool says about some images."""

    correct: Tensor
    """bool, one for each: it stays correctly classified."""
    one_for_all: tuple[Pose, ...] = ()
    """Where one motion was taken for all images: its steps."""


def is_installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def foolbox_answer(
    model: nn.Module, images: Tensor, labels: Tensor, *, shift_px: float = 3, turns: int = 31
) -> Answer:
    """Ask Foolbox for a pose that fools each image."""
    foolbox = _library("foolbox")
    attack = foolbox.attacks.SpatialAttack(
        max_translation=shift_px,
        max_rotation=30,
        num_translations=5,
        num_rotations=turns,
        grid_search=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.meshgrid, at each of the poses
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=images.device)
        _, _, fooled = attack(wrapped, images, labels)
    return Answer(~torch.as_tensor(fooled))


def foolbox_poses(size: int = 32, *, shift_px: float = 3, turns: int = 31) -> Pose:
    """The poses that Foolbox tries on images of ``size`` x ``size`` pixels."""
    reach = shift_px * (size - 1) / size
    return _then_turned(Space.of(f"shift({reach}px) rotate(0)").grid((5, 5, 1)), turns)


def art_answer(model: nn.Module, images: Tensor, labels: Tensor) -> Answer:
    """Ask ART for the pose that it takes for all images, and the network about that."""
    attack = art_attack(model, images)
    moved = torch.from_numpy(attack.generate(images.numpy()))
    with torch.no_grad():
        logits: Tensor = model(moved)
    shift = Pose.of(dx=float(attack.attack_trans_y), dy=float(attack.attack_trans_x))
    turn = Pose.of(angle=float(attack.attack_rot))
    return Answer(logits.argmax(1) == labels, (shift, turn))


def art_attack(model: nn.Module, images: Tensor) -> Any:
    """Set up ART's attack for images like these."""
    classifier = _library("art.estimators.classification").PyTorchClassifier(
        model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(images.shape[1:]),
        nb_classes=10,
        clip_values=(0, 1),
        device_type="cpu",
    )
    return _library("art.attacks.evasion").SpatialTransformation(
        classifier,
        max_translation=100 * 3 / images.shape[-1],  # in percent
        num_translations=5,
        max_rotation=30,
        num_rotations=31,
        verbose=False,
    )


def art_poses() -> Pose:
    """The poses that ART tries on 32x32 images with channels first."""
    return _then_turned(Pose.of(dx=[-3.0, -2.0, 0.0, 2.0, 3.0]))


def _then_turned(moved: Pose, turns: int = 31) -> Pose:
    """Follow each translation by each of the grid's rotations."""
    turned = Space.of("shift(0px) rotate(30)").grid((1, 1, turns))
    poses = moved[:, None].compose(then=turned[None, :])
    return Pose(poses.values.flatten(0, 1))


def _library(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries that it could also use
        return importlib.import_module(name)
