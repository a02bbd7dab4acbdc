"""Wide residual networks (Zagoruyko and Komodakis 2016).

6n+4 layers: one convolution of 16 channels, three stages of n blocks with 16k, 32k and 64k
channels, one linear layer. ``wideresnet28-10`` is the published network, of 36.5 million
parameters. A block is that of the pre-activation ResNet; where the number of channels changes, its
shortcut is a 1x1 convolution of the activations.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.layers import Standardise, batch_norm
from upright.models.registry import network

__all__ = ["WideBlock", "WideResNet", "wide_resnet"]


class WideResNet(nn.Module):
    """Maps images in [0, 1] to logits."""

    def __init__(self, *, depth: int, width: int, classes: int, channels: int) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        widths = [16, 16 * width, 32 * width, 64 * width]
        self.standardise = Standardise()
        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.blocks = nn.Sequential(
            *(
                WideBlock(before if first else after, after, stride if first else 1)
                for before, after, stride in zip(widths[:-1], widths[1:], (1, 2, 2), strict=True)
                for first in (True, *[False] * (blocks - 1))
            )
        )
        self.norm = batch_norm(widths[-1])
        self.linear = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(self.standardise(images)))
        logits: Tensor = self.linear(F.relu(self.norm(features)).mean((2, 3)))
        return logits


class WideBlock(nn.Module):
    """Two convolutions with norm and activation before each, beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = batch_norm(before), batch_norm(after)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        changes = before != after or stride > 1
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        branch: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return branch + (x if self.shortcut is None else self.shortcut(active))


@network(
    "wideresnetD-K with D = 6n+4 (as in wideresnet28-10, K times as wide)",
    r"wideresnet(\d+)-(\d+)",
    about="for small images, larger",
)
def wide_resnet(
    depth: str | int, width: str | int, *, classes: int = 10, channels: int = 3
) -> WideResNet:
    """Build the network of some depth, 6n+4, and width factor."""
    layers, factor = int(depth), int(width)
    if layers < 10 or layers > 1000 or (layers - 4) % 6:
        raise ValueError(f"a wideresnet has 6n+4 layers (10, 16, 22, 28, 34, ...), not {depth}")
    if not 1 <= factor <= 64:
        raise ValueError(f"a wideresnet is 1 to 64 times as wide, not {width}")
    return WideResNet(depth=layers, width=factor, classes=classes, channels=channels)
