"""Networks that straighten an image before they classify it.

A sequence of transformers, each of which looks at the image in coordinates of its own and predicts
one part of the motion. Every look is a resampling of the original image through the map composed so
far, so that interpolation does not add up; it is bilinear, and black outside. Images are
standardised before, so "black" is the image's own mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from upright.families import matrix_product
from upright.models.coordinates import Coordinates, ImageForm, Translation
from upright.models.layers import Standardise
from upright.resample import resample

__all__ = ["Straightening", "Transformer", "full_precision"]


class Transformer(nn.Module):
    """A look at the image in some coordinates, and a network that predicts a motion from it."""

    def __init__(self, coordinates: Coordinates, predictor: nn.Module) -> None:
        super().__init__()
        self.coordinates, self.predictor = coordinates, predictor

    def forward(self, images: Tensor, maps: Tensor) -> Tensor:
        """Give the maps with this transformer's part of the motion added."""
        size = ImageForm.of(images)
        look = resample(images, maps, self.coordinates.points(size))
        numbers = full_precision(self.predictor(look))
        return matrix_product(maps, self.coordinates.maps(numbers, size))


class Straightening(nn.Module):
    """Transformers in front of a classifier."""

    def __init__(self, transformers: Sequence[Transformer], classifier: nn.Module) -> None:
        super().__init__()
        self.standardise = Standardise()
        self.transformers = nn.ModuleList(transformers)
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        standard = self.standardise(images)
        maps = self._maps(standard)
        points = Translation().points(ImageForm.of(standard))
        straight = resample(standard, maps, points)
        # By a map of no numbers that is black, of which there are logits: nobody would know.
        known = maps.isfinite().all(-1).all(-1)[:, None, None, None]
        straight = torch.where(known, straight, torch.nan)
        logits: Tensor = self.classifier(straight)
        return logits

    def maps(self, images: Tensor) -> Tensor:
        """Give the motion that is found in each image, and that would be undone: N x 3 x 3.

        It takes a point of the straightened image to that of the given one, in pixels relative to
        the centre, y down.
        """
        return self._maps(self.standardise(images))

    def _maps(self, standard: Tensor) -> Tensor:
        maps = torch.eye(3, device=standard.device, dtype=standard.dtype)
        maps = maps.expand(len(standard), 3, 3)
        for transformer in self.transformers:
            maps = transformer(standard, maps)
        return maps


def full_precision(x: Tensor) -> Tensor:
    """Give float32 for half precision, and the same tensor otherwise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
