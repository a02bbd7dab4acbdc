"""Exported models are fixed to the sizes that they were exported with: make them take any batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from upright.checks import Model
from upright.logits import ask

__all__ = ["Sized", "not_taken"]

_AXES = ("channels", "height", "width")


@dataclass(frozen=True)
class Sized:
    """Sends a model batches of the sizes that it takes, and says which images it does not take.

    Attributes:
        model: the exported model.
        least: images that a batch must have; a smaller batch is filled up with black images.
        most: images that a batch may have; None for any number.
        image: channels, height and width, in the order of the model; None for any.
        channels_last: whether it is height, width and channels.
    """

    model: Model
    least: int
    most: int | None
    image: tuple[int | None, ...]
    channels_last: bool = False

    @property
    def side(self) -> int | None:
        """Of the square images that it takes, in pixels; None where it takes others."""
        height, width = self.image[:2] if self.channels_last else self.image[1:]
        return height if height == width else None

    def __call__(self, images: Tensor) -> Tensor:
        self._check(images)
        parts = images.split(self.most or max(1, len(images)))
        return torch.cat([self._ask(part) for part in parts])

    def _ask(self, images: Tensor) -> Tensor:
        missing = max(0, self.least - len(images))
        filled = F.pad(images, [0] * 7 + [missing]) if missing else images
        return ask(self.model, filled)[: len(images)]

    def _check(self, images: Tensor) -> None:
        if not self._fits(images):
            axes = ("height", "width", "channels") if self.channels_last else _AXES
            raise ValueError(
                f"the model was exported for images of {_times(self.image)} "
                f"({' x '.join(axes)}), but these are {_times(images.shape[1:])}; "
                f"{self._advice(images)}"
            )

    def _advice(self, images: Tensor) -> str:
        if self._fits(images.movedim(3, 1)):
            return "leave out --layout: it takes channels first"
        if self._fits(images.movedim(1, 3)):
            return "give --layout channels-last"
        place = 2 if self.channels_last else 0
        if self.image[place] not in (None, images.shape[1:][place]):
            return (
                "the number of channels differs, of which --channels only tells the order: give "
                "such images, or export a model that makes them of these"
            )
        return "resize the images, or export the model for this size"

    def _fits(self, images: Tensor) -> bool:
        pairs = zip(self.image, images.shape[1:], strict=True)
        return all(wanted in (None, size) for wanted, size in pairs)


def not_taken(images: Tensor, why: str, *, model: str = "the model") -> str:
    """Say that a model does not take images, and what these may need, where it cannot be known."""
    first = images.shape[1] <= 4
    layout = "give --layout channels-last" if first else "leave out --layout"
    return (
        f"{model} does not take images of {_times(images.shape[1:])}: {' '.join(why.split())}; "
        "bring them to its size by a function around it, those of a folder by --resize and "
        f"--center-crop, or, if it takes channels {'last' if first else 'first'}, {layout}"
    )


def _times(sizes: tuple[int | None, ...] | torch.Size) -> str:
    return " x ".join("any" if size is None else str(size) for size in sizes)
