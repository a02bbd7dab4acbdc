"""Networks of ImageNet's size with random weights, for benchmarks: no library has to be there."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Tiny", "efficientnet_lite0", "mobilenet", "resnet50", "vit_b16"]


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


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0: B0 (Tan and Le 2019) without squeezing and with ReLU6."""
    layers: list[nn.Module] = [_convolution(3, 32, 3, 2, last=nn.ReLU6(inplace=True))]
    before = 32
    for widening, side, stride, after, blocks in (
        *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
        *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
    ):
        for block in range(blocks):
            layers.append(_Inverted(before, after, side, 1 if block else stride, widening))
            before = after
    layers.append(_convolution(before, 1280, 1, last=nn.ReLU6(inplace=True)))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def vit_b16() -> nn.Module:
    """ViT-B/16 (Dosovitskiy et al. 2020): 12 layers of 768 channels on patches of 16 pixels."""
    return _Patches(768, 12, 12)


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


class _Inverted(nn.Module):
    def __init__(self, before: int, after: int, side: int, stride: int, widening: int) -> None:
        super().__init__()
        wide = before * widening
        wider = [_convolution(before, wide, 1, last=nn.ReLU6(inplace=True))] if widening > 1 else []
        self.body = nn.Sequential(
            *wider,
            _convolution(wide, wide, side, stride, wide, last=nn.ReLU6(inplace=True)),
            _convolution(wide, after, 1, last=nn.Identity()),
        )
        self.adds = stride == 1 and before == after

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.body(images)
        return found + images if self.adds else found


class _Patches(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, side: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (side // 16) ** 2 + 1, width) / 50)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.token.expand(len(patches), -1, -1), patches), 1)
        logits: Tensor = self.head(self.norm(self.layers(tokens + self.positions)[:, 0]))
        return logits


def _convolution(
    before: int,
    after: int,
    side: int,
    stride: int = 1,
    groups: int = 1,
    last: nn.Module | None = None,
) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, side, stride, side // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True) if last is None else last,
    )
