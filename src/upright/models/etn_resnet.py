"""The classifier behind the transformers of STN and ETN (Tai, Bailis and Valiant 2019).

A ResNet of basic blocks for small images: a 5 x 5 stem of 32 channels, max pooling, four stages of
32, 64, 128 and 256 channels, dropout, average pooling, one linear layer. 10 layers have 1,230,506
parameters for 10 classes, 18 have 2,799,146 and 34 have 5,328,042.
"""

from __future__ import annotations

from torch import Tensor, nn

from upright.models.layers import batch_norm

__all__ = ["DEPTHS", "BasicBlock", "etn_resnet"]

DEPTHS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
"""Blocks of each stage, by the number of layers."""


def etn_resnet(
    depth: int, *, width: float = 1.0, classes: int = 10, channels: int = 3
) -> nn.Sequential:
    """Build the classifier, with ``width`` times the channels; it does not standardise images."""
    first, *widths = (max(1, round(base * width)) for base in (32, 32, 64, 128, 256))
    layers: list[nn.Module] = [
        nn.Conv2d(channels, first, 5, padding=2, bias=False),
        batch_norm(first),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    before = first
    for stage, (after, blocks) in enumerate(zip(widths, DEPTHS[depth], strict=True)):
        for block in range(blocks):
            layers.append(BasicBlock(before, after, 2 if stage and not block else 1))
            before = after
    layers += [nn.Dropout(0.3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


class BasicBlock(nn.Module):
    """Two convolutions with norm and activation after each; where the shape changes, the shortcut
    is a 1 x 1 convolution with a norm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            batch_norm(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            batch_norm(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), batch_norm(after)
            )
        self.activate = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        active: Tensor = self.activate(self.branch(x) + self.shortcut(x))
        return active
