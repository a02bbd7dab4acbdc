"""A network for large images that is shown small ones: ``enlarged224:timm:resnet50``.

Images are moved as they are and enlarged after that, inside of the network: as large ones they
would take 49 times the memory, and as long to move.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.registry import build_network, is_network, network

__all__ = ["Enlarged", "enlarged"]

_SIDES = range(1, 4097)


class Enlarged(nn.Module):
    """Enlarges images, bilinearly, so that their shorter side has ``side`` pixels; none shrinks."""

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.network, self.side = network, side
        # It has no mode of its own: around a network in evaluation mode nothing is in training.
        self.training = network.training

    def forward(self, images: Tensor) -> Tensor:
        shorter = min(images.shape[-2:])
        if shorter < self.side:
            size = [round(each * self.side / shorter) for each in images.shape[-2:]]
            images = F.interpolate(images, size=size, mode="bilinear")
        logits: Tensor = self.network(images)
        return logits


@network(
    "enlargedN:NETWORK (as in enlarged224:timm:resnet50)",
    r"enlarged(\d{1,5}):(.+)",
    about="another network, shown small images enlarged to N pixels",
)
def enlarged(side: str | int, name: str, *, classes: int = 10, channels: int = 3) -> Enlarged:
    """Build a network by its name, for images that are smaller than it wants them."""
    if int(side) not in _SIDES:
        raise ValueError(f"images are enlarged to 1 to {_SIDES[-1]} pixels, not {side}")
    if ":" in name and not is_network(name):
        raise ValueError(
            f"enlarged{side}: takes networks by name, of this package, timm:NAME or "
            f"torchvision:NAME, and not {name!r}; let code of your own give "
            f"upright.models.enlarged.Enlarged(network, {side}) itself"
        )
    return Enlarged(build_network(name, classes=classes, channels=channels), int(side))
