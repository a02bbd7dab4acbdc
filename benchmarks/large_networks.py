"""Two networks for ImageNet, counted by arithmetic, for ``scaling.py``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLASSES", "Network", "resnet50", "vit_large"]

CLASSES = 1000

# Measured, docs/performance.md: a large matrix product in bfloat16, and grid-775 on ResNet-32.
MATRIX_FLOPS = 790e12
RESNET_UTILISATION = 892_000 * 138e6 / MATRIX_FLOPS


@dataclass(frozen=True)
class Network:
    name: str
    forward_flop: float
    parameters: float
    utilisation: float
    epochs: int
    batch: int
    norms: int = 0
    norm_channels: float = 0.0
    """In the mean."""

    @property
    def passes_per_second(self) -> float:
        return MATRIX_FLOPS * self.utilisation / self.forward_flop


def vit_large(utilisation: float) -> Network:
    """ViT-L/16: 24 layers of 1,024 channels on 196 patches and a class token."""
    tokens, width, depth = 197, 1024, 24
    weights = depth * 12 * width**2
    attention = depth * 2 * tokens**2 * width
    patches = 16 * 16 * 3 * width
    flop = 2 * (tokens * weights + attention + 196 * patches + width * CLASSES)
    # Weights, biases and norms of each layer, patches, positions, the last norm and the head.
    parameters = (
        weights
        + depth * 13 * width
        + patches
        + width
        + (tokens + 1) * width
        + 2 * width
        + (width + 1) * CLASSES
    )
    return Network("ViT-L/16", flop, parameters, utilisation, epochs=300, batch=4096)


def resnet50() -> Network:
    """ResNet-50: stages of 3, 4, 6 and 3 bottlenecks, strides in their 3x3 convolutions."""
    convolutions = [(3, 64, 7, 112)]  # channels before and after, kernel, side of the result
    before = 64
    for width, blocks, side in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            entry = side * 2 if block == 0 and width > 64 else side
            convolutions += [(before, width, 1, entry), (width, width, 3, side)]
            convolutions.append((width, 4 * width, 1, side))
            if block == 0:
                convolutions.append((before, 4 * width, 1, side))
            before = 4 * width
    weights = sum(a * b * kernel**2 for a, b, kernel, _ in convolutions)
    channels = sum(after for _, after, _, _ in convolutions)
    macs = sum(a * b * kernel**2 * side**2 for a, b, kernel, side in convolutions)
    return Network(
        "ResNet-50",
        2 * (macs + before * CLASSES),
        weights + 2 * channels + (before + 1) * CLASSES,
        RESNET_UTILISATION,
        epochs=90,
        batch=1024,
        norms=len(convolutions),
        norm_channels=channels / len(convolutions),
    )
