"""Photographs with labels, and the names of ImageNet's classes, from packages of PyPI."""

from __future__ import annotations

import io
import re
from functools import cache

import numpy as np
import torch
from photograph_packages import pypi
from PIL import Image

from upright.data import LabelledImages

__all__ = ["FREE", "class_names", "free_photographs", "photographs", "square"]

_FOOLBOX = pypi(
    "foolbox",
    "3.3.4",
    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
    licence="MIT",
)
_TIMM = pypi(
    "timm",
    "1.0.30",
    "c8e27adf6801a2fdfb570dbbdd171f2f084756eefc673df8cfaab06bd14864f3",
    licence="Apache-2.0",
)
_SKIMAGE = pypi(
    "scikit_image",
    "0.25.2",
    "24cc986e1f4187a12aa319f777b36008764e856e5013666a4a83f8df083c2641",
    licence="BSD-3-Clause",
    tags="cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
)
_NAMED = re.compile(r"foolbox/data/imagenet_\d+_(\d+)\.jpg")


def photographs(side: int) -> LabelledImages:
    """The 20 photographs of ImageNet that come with Foolbox, whose names hold their labels.

    They are scaled to ``side`` pixels along the shorter side, of which the central square is left.
    """
    found = [(name, match) for name in sorted(_FOOLBOX.members()) if (match := _NAMED.match(name))]
    pictures = [Image.open(io.BytesIO(_FOOLBOX.read(name))) for name, _ in found]
    images = torch.stack([square(picture, side) for picture in pictures])
    return LabelledImages(
        images, torch.tensor([int(match[1]) for _, match in found]), class_names()
    )


FREE = {
    "chelsea.png": "Chelsea: CC0, Stefan van der Walt",
    "coffee.png": "Coffee: CC0, Rachel Michetti",
    "rocket.jpg": "Rocket: public domain, SpaceX",
    "camera.png": "Camera: CC0, Lav Varshney",
}
"""Photographs of scikit-image that anybody may show, with who gave them away, as its documentation
of each says."""


def free_photographs(side: int) -> torch.Tensor:
    """The photographs that may be shown: uint8, N x 3 x side x side."""
    pictures = (Image.open(io.BytesIO(_SKIMAGE.read(f"skimage/data/{name}"))) for name in FREE)
    return torch.stack([square(picture, side) for picture in pictures])


def square(picture: Image.Image, side: int) -> torch.Tensor:
    """Scale a picture and cut out its central square: uint8, 3 x side x side."""
    scale = side / min(picture.size)
    width, height = (max(side, round(each * scale)) for each in picture.size)
    scaled = picture.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    cut = scaled.crop((left, top, left + side, top + side))
    return torch.from_numpy(np.array(cut)).permute(2, 0, 1).contiguous()


@cache
def class_names() -> tuple[str, ...]:
    """ImageNet's 1,000 classes in their usual order, each by the first of its names."""
    synsets, lemmas = (
        _TIMM.read(f"timm/data/_info/{file}.txt").decode().splitlines()
        for file in ("imagenet_synsets", "imagenet_synset_to_lemma")
    )
    names = dict(line.split("\t", 1) for line in lemmas)
    return tuple(names[synset].split(",")[0] for synset in synsets)
