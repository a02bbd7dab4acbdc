"""Normalisation as a part of the model, for data that a loader has normalised already.

What a pose uncovers is black, which is 0 only in images that are not normalised yet. So models are
asked with images in [0, 1]; where loader and network agree on a mean and a std, ``Normalised``
stands between: it takes the loader's images back, and shows the network what it is used to.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from upright.checks import Model, check_float_images
from upright.identity import as_module
from upright.logits import logits_of

__all__ = ["Normalised"]


class Normalised(nn.Module):
    """Takes images in [0, 1] to a network that wants them shifted by a mean and scaled by a std.

    With a loader that normalises, in a training loop::

        model = Normalised(network, mean, std)
        terms = loss(model, model.undo(images), labels)

    >>> model = Normalised(nn.Flatten(), mean=[0.5], std=[0.25])
    >>> model(torch.ones(1, 1, 1, 2)), model.undo(torch.full((1, 1, 1, 2), 2.0)).flatten()
    (tensor([[2., 2.]]), tensor([1., 1.]))

    Args:
        network: from normalised images to logits.
        mean: of each channel, or one for all of them, on the scale of images in [0, 1].
        std: likewise.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, network: Model, mean: float | Sequence[float], std: float | Sequence[float]
    ) -> None:
        super().__init__()
        mean, std = _numbers(mean), _numbers(std)
        if len(mean) != len(std) or not all(each > 0 for each in std):
            raise ValueError(
                f"mean and std need one number for each channel, and a std is above 0, but they "
                f"are {mean} and {std}"
            )
        self.network = as_module(network)
        # It has no mode of its own: around a network in evaluation mode nothing is in training.
        self.training = self.network.training
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        mean, std = self._for(images)
        return logits_of(self.network((images - mean) / std))

    def undo(self, images: Tensor) -> Tensor:
        """Give images in [0, 1] back from those that a loader normalised."""
        mean, std = self._for(images)
        return images * std + mean

    def _for(self, images: Tensor) -> tuple[Tensor, Tensor]:
        # Else a mean of three would make three channels of one, and one of uint8 would be 0.
        check_float_images(images)
        if (channels := self.mean.shape[1]) not in (1, images.shape[1]):
            raise ValueError(
                f"mean and std are of {channels} channels, but the images have {images.shape[1]}; "
                "give those of these images, one number for each channel"
            )
        return self.mean.to(images), self.std.to(images)


def _numbers(given: float | Sequence[float]) -> list[float]:
    """Give one number or several, of whatever kind, as those of Python."""
    numbers: list[float] = torch.as_tensor(given, dtype=torch.float64).flatten().tolist()
    return numbers
