"""Networks that straighten an image before they classify it.

A sequence of transformers, each of which looks at the image in coordinates of its own and predicts
one part of the motion. Every look is a resampling of the original image through the map composed so
far, so that interpolation does not add up; it is bilinear, and black outside. Images are
standardised before, so "black" is the image's own mean.

``upright.warp`` resamples images under a `Pose`; here it is under maps that also scale, and by a
network that knows nothing of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.coordinates import Coordinates, Size, Translation
from upright.models.layers import Standardise

__all__ = ["Straightening", "Transformer", "full_precision", "resample"]


class Transformer(nn.Module):
    """A look at the image in some coordinates, and a network that predicts a motion from it."""

    def __init__(self, coordinates: Coordinates, predictor: nn.Module) -> None:
        super().__init__()
        self.coordinates, self.predictor = coordinates, predictor

    def forward(self, images: Tensor, maps: Tensor) -> Tensor:
        """Give the maps with this transformer's part of the motion added."""
        size = Size.of(images)
        look = resample(images, self.coordinates.points(size), maps)
        numbers = full_precision(self.predictor(look))
        return _product(maps, self.coordinates.maps(numbers, size))


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
        points = Translation().points(Size.of(standard))
        logits: Tensor = self.classifier(resample(standard, points, maps))
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


def resample(images: Tensor, points: Tensor, maps: Tensor) -> Tensor:
    """Sample each image where its map takes the points: N x C x R x S, black outside.

    In a frame whose sides are powers of two, normalised coordinates of whole pixels are exact:
    identity maps at the image's own pixels give it back bit for bit. Never in half precision, which
    cannot hold a position to a useful fraction of a pixel.
    """
    height, width = images.shape[-2:]
    frame = [0, _power_of_two(width) - width, 0, _power_of_two(height) - height]
    (a, b, dx), (c, d, dy) = (
        row[..., None, None].unbind(1) for row in full_precision(maps)[:, :2].unbind(1)
    )
    x, y = points
    place = (
        (2 * (a * x + b * y + dx) + width) / (width + frame[1]) - 1,
        (2 * (c * x + d * y + dy) + height) / (height + frame[3]) - 1,
    )
    pixels = F.pad(images, frame) if any(frame) else images
    with torch.autocast(images.device.type, enabled=False):
        return F.grid_sample(
            full_precision(pixels), torch.stack(place, -1), "bilinear", align_corners=False
        )


def full_precision(x: Tensor) -> Tensor:
    """Give float32 for half precision, and the same tensor otherwise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices N x 3 x 3 by plain sums: a matrix unit might round to half precision."""
    return (left[..., None] * right[:, None]).sum(2)


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
