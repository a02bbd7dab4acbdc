"""A data set: arrows that point in four directions, drawn when they are asked for."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageDraw

from upright.data import LabelledImages, Request, data_set

__all__ = ["arrows"]

_CLASSES = ("right", "up", "left", "down")
_ARROW = ((5, 13), (17, 13), (17, 7), (27, 16), (17, 25), (17, 19), (5, 19))


def arrows(count: int, *, seed: int) -> LabelledImages:
    """Draw arrows of random colours, each up to 20 degrees off its direction."""
    pixels = np.empty((count, 32, 32, 3), np.uint8)
    labels = np.empty(count, np.int64)
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        labels[index] = rng.integers(4)
        ground, colour = ((*rng.integers(low, low + 120, 3).tolist(),) for low in (0, 135))
        picture = Image.new("RGB", (32, 32), ground)
        ImageDraw.Draw(picture).polygon(_ARROW, fill=colour)
        angle = 90 * labels[index] + rng.uniform(-20, 20)
        turned = picture.rotate(angle, Image.Resampling.BILINEAR, fillcolor=ground)
        pixels[index] = np.asarray(turned)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return LabelledImages(images, torch.from_numpy(labels), _CLASSES)


@data_set("arrows")
def _asked(request: Request) -> LabelledImages:
    everything = 4000 if request.split == "train" else 1000
    # The two splits must share no image: their seeds are even and odd.
    seed = 2 * request.seed + int(request.split == "test")
    return arrows(everything if request.limit is None else request.limit, seed=seed)
