"""Networks of ImageNet's size with random weights, for benchmarks: no library has to be there."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Tiny", "mobilenet", "resnet50"]


def mobilenet() -> nn.Module:
    """MobileNet-v1 (Howard et al. 2017): 13 pairs of a depthwise and a pointwise convolution."""
    strides = ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1))
    rest = ((256, 512, 2), *[(512, 512, 1)] * 5, (512, 1024, 2), (1024, 1024, 1))
    layers = [_convolution(3, 32, 3, 2)]
    for before, after, stride in (*strides, *rest):
        layers += [_convolution(before, before, 3, stride, before), _convolution(before, after, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


def resnet50() -> nn.Module:
    """ResNet-50 (He et al. 2015), with strides in its 3x3 convolutions."""
    layers: list[nn.Module] = [_convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(_Bottleneck(before, width, stride if block == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


class Tiny(nn.Sequential):
    """A network that takes next to nothing, to see that a benchmark works."""

    def __init__(self) -> None:
        pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000))
        super().__init__(_convolution(3, 8, 3, 4), *pool)


class _Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        last = nn.Sequential(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.body = nn.Sequential(
            _convolution(before, width, 1), _convolution(width, width, 3, stride), last
        )
        plain = stride == 1 and before == 4 * width
        self.beside = (
            nn.Identity()
            if plain
            else nn.Sequential(
                nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.body(images) + self.beside(images))


def _convolution(before: int, after: int, side: int, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, side, stride, side // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )
