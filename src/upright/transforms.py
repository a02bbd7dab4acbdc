"""A space as a plain transform of images: a random pose for each of them.

It needs nothing of torchvision, and goes where its transforms go: into a ``v2.Compose``, into a
data set, or behind a loader on a GPU, where a whole batch is moved at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from upright.checks import warn_if_normalised
from upright.space import PAPER, Space
from upright.warp import Fill, Interpolation, Resampling, check_chain
from upright.window import Window

__all__ = ["Random"]


class Random(nn.Module):
    """Changes each image by a pose of its own, drawn uniformly from a space.

    Images are N x C x H x W, or a single one C x H x W; float in [0, 1], or uint8, which is given
    back as uint8. What else is passed, such as labels, is given back behind them as it is. It is
    the same in training and in evaluation, as torchvision's transforms are.

    Args:
        space: a space or its text.
        view: give the central so many pixels of the moved image, see ``warp``.
        fill: what lies outside an image, see ``warp``.
        interpolation: how images are resampled, see ``warp``.
        generator: what draws; by default torch's own of the images' device, of which every worker
            of a ``DataLoader`` has another seed. Workers that share one given here draw alike.

    >>> Random("shift(10%) rotate(20) zoom(0.9..1.1)", fill="reflection")
    Random('shift(10%) rotate(20) zoom(0.9..1.1)', fill='reflection')
    >>> Random("shift rotate brightness")(torch.rand(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """

    def __init__(
        self,
        space: str | Space = PAPER,
        *,
        view: int | None = None,
        fill: Fill = "black",
        interpolation: Interpolation = "bilinear",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.space, self.generator = Space.of(space), generator
        self.resampling = Resampling(fill, interpolation, view)
        check_chain(self.space.chain, interpolation)
        self._looked = False

    def forward(self, images: Tensor, *others: Any) -> Any:
        """Give the moved images; with others, a tuple of them all."""
        _check(images)
        batch = images if images.ndim == 4 else images[None]
        moved = _in_bytes(self._moved(batch / 255)) if _is_bytes(images) else self._moved(batch)
        moved = moved if images.ndim == 4 else moved[0]
        if type(images) is not Tensor:  # as torchvision's own images are
            moved = moved.as_subclass(type(images))
        return (moved, *others) if others else moved

    def extra_repr(self) -> str:
        """Say the space, and what is not as usual."""
        usual = {"view": None, "fill": "black", "interpolation": "bilinear"}
        mine = {name: getattr(self.resampling, name) for name in usual}
        told = [f"{name}={value!r}" for name, value in mine.items() if value != usual[name]]
        return ", ".join([repr(str(self.space)), *told])

    def _moved(self, images: Tensor) -> Tensor:
        if not (self._looked or self.space.chain.is_spatial):  # once: it waits for a GPU
            warn_if_normalised(images)
            self._looked = True
        space = self.space.in_pixels(*Window.of(images, self.resampling.view).size)
        device = images.device if self.generator is None else self.generator.device
        poses = space.sample(len(images), generator=self.generator, device=device)
        return self.resampling(images.as_subclass(Tensor), poses)


def _is_bytes(images: Tensor) -> bool:
    return images.dtype == torch.uint8


def _in_bytes(images: Tensor) -> Tensor:
    return images.mul(255).round().clamp(0, 255).to(torch.uint8)


def _check(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise ValueError(
            f"images must be a tensor, but are of type {type(images).__name__}; of a picture, make "
            "one with torchvision.transforms.v2.functional.pil_to_tensor"
        )
    if images.ndim not in (3, 4) or not (images.is_floating_point() or _is_bytes(images)):
        raise ValueError(
            f"images must be float or uint8, N x C x H x W or C x H x W, but are {images.dtype} of "
            f"shape {tuple(images.shape)}"
        )
