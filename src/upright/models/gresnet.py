"""G-ResNet: a pre-activation ResNet of p4m group convolutions (Cohen and Welling 2016).

6n+2 layers: one lifting convolution, three stages of n blocks with 11, 23 and 45 channels on each
of 8 planes, one linear layer. ``gresnet44`` is the published network, of 2,622,878 parameters for
10 classes; ``gresnet14x0.5`` and so on its family by depth and width. Whether it is exact under
quarter turns and mirror images is a matter of two options:

* ``down="stride"``, as published, halves the size by strided convolutions, which turn with the
  image on sizes of 4k+1 pixels only. ``down="pool"``, in names ``-pool``, averages after
  convolutions instead: exact on all sizes.
* ``head="planes"``, as published, keeps the planes apart, so that logits may depend on how the
  image is turned. ``head="pooled"``, in names ``-invariant``, averages them: logits stay as they
  are. Not for digits, where a 6 would be a 9.
"""

from __future__ import annotations

import math
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from upright.models.group_conv import P4M, Group, GroupBatchNorm, GroupConv, GroupPool, LiftingConv
from upright.models.layers import Standardise
from upright.models.registry import network

__all__ = ["GBlock", "GResNet", "gresnet"]

Down = Literal["stride", "pool"]
Head = Literal["planes", "pooled"]


class GResNet(nn.Module):
    """Maps images in [0, 1] to logits."""

    def __init__(
        self,
        *,
        depth: int = 44,
        width: float = 1.0,
        down: Down = "stride",
        head: Head = "planes",
        group: Group = P4M,
        classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        _check(depth, down, head)
        widths = [max(1, round(base * width)) for base in (11, 11, 23, 45)]
        self.standardise = Standardise()
        self.stem = LiftingConv(group, channels, widths[0], 3)
        self.blocks = nn.Sequential(
            *(
                GBlock(group, before if first else after, after, down if halves and first else None)
                for before, after, halves in zip(
                    widths[:-1], widths[1:], (False, True, True), strict=True
                )
                for first in (True, *[False] * ((depth - 2) // 6 - 1))
            )
        )
        self.norm = GroupBatchNorm(group, widths[-1])
        self.pool = GroupPool(group) if head == "pooled" else nn.Identity()
        self.linear = nn.Linear(widths[-1] * (1 if head == "pooled" else group.planes), classes)
        limit = math.sqrt(3 / self.linear.in_features)
        nn.init.uniform_(self.linear.weight, -limit, limit)
        nn.init.zeros_(self.linear.bias)

    def features(self, images: Tensor) -> Tensor:
        """Give the features before the head, plane by plane: they turn with the image."""
        features: Tensor = self.norm(self.blocks(self.stem(self.standardise(images))))
        return F.relu(features)

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.pool(self.features(images).mean((2, 3), keepdim=True))
        logits: Tensor = self.linear(pooled.flatten(1))
        return logits


class GBlock(nn.Module):
    """Two group convolutions with norm and activation before each, beside a shortcut.

    Where width or size changes, the shortcut is a 1x1 group convolution of the raw input.
    """

    def __init__(self, group: Group, before: int, after: int, down: Down | None) -> None:
        super().__init__()
        stride = 2 if down == "stride" else 1
        self.pools = down == "pool"
        self.norm1 = GroupBatchNorm(group, before)
        self.conv1 = GroupConv(group, before, after, 3, stride=stride)
        self.norm2 = GroupBatchNorm(group, after)
        self.conv2 = GroupConv(group, after, after, 3)
        changes = before != after or down is not None
        self.shortcut = (
            GroupConv(group, before, after, 1, stride=stride) if changes else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv1(F.relu(self.norm1(x)))
        if self.pools:
            inner, x = _halve(inner), _halve(x)
        branch: Tensor = self.conv2(F.relu(self.norm2(inner)))
        shortcut: Tensor = self.shortcut(x)
        return branch + shortcut


def _halve(x: Tensor) -> Tensor:
    """Average over neighbours, two by two along an even axis, three by three along an odd one.

    The windows of an odd axis overlap and end outside of it: no other way is the same from both
    ends.
    """
    odd = [size % 2 for size in x.shape[-2:]]
    kernel = [2 + rest for rest in odd]
    return F.avg_pool2d(x, kernel, stride=2, padding=odd, count_include_pad=False)


def _check(depth: int, down: str, head: str) -> None:
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"a gresnet has 6n+2 layers (8, 14, 20, ..., 44, ...), not {depth}")
    if down not in ("stride", "pool"):
        raise ValueError(f"a gresnet halves sizes by 'stride' or 'pool', not by {down!r}")
    if head not in ("planes", "pooled"):
        raise ValueError(f"the head of a gresnet is 'planes' or 'pooled', not {head!r}")


@network(
    "gresnetD with D = 6n+2 (as in gresnet44; gresnet14x0.5 for half the channels, gresnet44-pool "
    "to turn with the image exactly, gresnet44-pool-invariant for logits that stay the same)",
    r"gresnet(\d+)(?:x(\d*\.?\d+))?(-pool)?(-invariant)?",
    about="group convolutions",
)
def gresnet(
    depth: str | int = 44,
    width: str | float | None = None,
    pool: str | None = None,
    invariant: str | None = None,
    *,
    classes: int = 10,
    channels: int = 3,
) -> GResNet:
    """Build the network from the parts of its name."""
    return GResNet(
        depth=int(depth),
        width=float(width or 1),
        down="pool" if pool else "stride",
        head="pooled" if invariant else "planes",
        classes=classes,
        channels=channels,
    )
